// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package envtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// isolate gives cmd its own process group: a Ctrl-C at the terminal must not reach the child, which
// we may still need for cleanup.
func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// kill also kills the process's children.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// interrupt also reaches the process's children.
func interrupt(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGINT) }

func raise(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), number)
	}
}

func supported() error { return nil }

func lockFile(f *os.File, exclusive, wait bool) (bool, error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

// checkOwner protects against a directory that another user has created in a shared one.
func checkOwner(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("it belongs to another user")
	}
	return nil
}
