// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package childtest tests that a command leaves nothing behind when a signal ends it.
package childtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	asCommand = "CHILDTEST_RUN_COMMAND" // makes the test binary the command itself
	pipeName  = "CHILDTEST_PIPE"
)

// Hanging is the text of a test file of package hang. Its TestHang runs with a child process until
// it is killed. The command under test must run it.
const Hanging = `package hang

import (
	"os"
	"os/exec"
	"testing"
)

func TestHang(t *testing.T) {
	pipe, err := os.OpenFile(os.Getenv("` + pipeName + `"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	child.Stdout = pipe
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.WriteString(os.TempDir() + "\n"); err != nil {
		t.Fatal(err)
	}
	select {}
}
`

// Main is the TestMain of the command's package: it runs the command or the tests.
func Main(m *testing.M, command func()) {
	if os.Getenv(asCommand) != "" {
		command()
		return
	}
	m.Run() // the caller exits with its result
}

// Signals sends SIGTERM and SIGINT to the command while it runs Hanging. The command must end with
// the exit status. The hanging test and its child must end, too, and all temporary files must be
// gone. prepare returns the folder to run the command in, and its arguments.
func Signals(t *testing.T, status int, prepare func(t *testing.T) (dir string, args []string)) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			dir, args := prepare(t)
			signalled(t, signal, status, dir, args)
		})
	}
}

func signalled(t *testing.T, signal syscall.Signal, status int, dir string, args []string) {
	t.Helper()
	tmp, name := t.TempDir(), filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(name, 0o600))
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // O_RDWR: it opens at once
	must(t, err)
	defer pipe.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], args...)
	program.Dir = dir
	program.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+tmp, pipeName+"="+name)
	var out bytes.Buffer
	program.Stdout, program.Stderr = &out, &out
	must(t, program.Start())
	ended := make(chan error, 1)
	go func() {
		err := program.Wait()
		_, _ = pipe.WriteString("the command has ended\n")
		ended <- err
	}()
	if line := readLine(t, pipe); !strings.HasPrefix(line, tmp) {
		_ = program.Process.Kill() // it may have ended
		t.Fatalf("no test that runs in %s, but %q: %v\n%s", tmp, line, <-ended, &out)
	}
	// From here on, only the hanging test and its child have the pipe open for writing. Reading
	// ends when they do.
	last, err := os.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	defer last.Close()
	pipe.Close()
	must(t, program.Process.Signal(signal))
	if err := <-ended; program.ProcessState.ExitCode() != status {
		t.Errorf("it ended with %v\n%s", err, &out)
	}
	leftNothing(t, tmp, last)
}

func leftNothing(t *testing.T, tmp string, pipe *os.File) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %q behind, %v", left, err)
	}
	must(t, pipe.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := pipe.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the test or its child runs on: %v", err)
	}
}

func readLine(t *testing.T, f *os.File) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		_, err := f.Read(b)
		must(t, err)
		if b[0] == '\n' {
			return string(line)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
