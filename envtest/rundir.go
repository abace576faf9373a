// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// runDir is the directory of one control plane, with data, sockets and a key. Next to it is a lock
// file, on which this process and each child hold a shared lock. Without a lock the directory is
// abandoned (E5).
type runDir struct {
	path string
	lock *os.File
}

// maxSocketPath is the longest that every system supports, in bytes.
const maxSocketPath = 103

func runParent() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("setpoint-envtest-%d", os.Getuid()))
}

func newRunDir(parent string) (*runDir, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, dataError(err)
	}
	info, err := os.Lstat(parent)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err == nil {
		err = checkOwner(info)
	}
	if err != nil {
		return nil, fmt.Errorf("envtest: cannot use %s for the control plane's data: %w; remove it, or set TMPDIR", parent, err)
	}
	sweep(parent)
	for {
		lock, err := os.CreateTemp(parent, "*.lock")
		if err != nil {
			return nil, dataError(err)
		}
		d := &runDir{path: strings.TrimSuffix(lock.Name(), ".lock"), lock: lock}
		err = d.claim()
		if err == nil {
			return d, nil
		}
		os.Remove(lock.Name())
		lock.Close()
		if !errors.Is(err, errSwept) {
			return nil, err
		}
	}
}

func dataError(err error) error {
	return fmt.Errorf("envtest: cannot write the control plane's data: %w; free some space, or set TMPDIR to a writable directory", err)
}

// errSwept means that another sweep removed our lock file as abandoned, before we had locked it.
var errSwept = errors.New("swept")

func (d *runDir) claim() error {
	if len(d.socket()) > maxSocketPath {
		return fmt.Errorf("envtest: the path of the socket %s is longer than %d bytes; set TMPDIR to a shorter directory", d.socket(), maxSocketPath)
	}
	if _, err := lockFile(d.lock, false, true); err != nil {
		return err
	}
	here, err := d.lock.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(d.lock.Name()); err != nil || !os.SameFile(here, there) {
		return errSwept
	}
	return os.Mkdir(d.path, 0o700)
}

func (d *runDir) socket() string { return filepath.Join(d.path, "etcd.sock") }

// remove may be called only after all processes that use the directory have ended.
func (d *runDir) remove() error {
	err := errors.Join(os.RemoveAll(d.path), os.RemoveAll(d.lock.Name()), d.lock.Close())
	if err != nil {
		return fmt.Errorf("envtest: cannot remove the control plane's data: %w", err)
	}
	return nil
}

// sweep leaves failed removals to the next start.
func sweep(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, "*.lock"))
	for _, name := range locks {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if abandoned, err := lockFile(f, true, false); err == nil && abandoned {
			if os.RemoveAll(strings.TrimSuffix(name, ".lock")) == nil {
				_ = os.Remove(name)
			}
		}
		f.Close()
	}
}
