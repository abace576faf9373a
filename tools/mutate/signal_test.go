// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

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

// asMain in the environment makes the test binary the program itself.
const asMain = "MUTATE_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// hanging is a test that prints where it runs, and runs until it is killed.
const hanging = `package hang

import (
	"os"
	"testing"
)

func TestHang(t *testing.T) {
	pipe, err := os.OpenFile(os.Getenv("HANG_PIPE"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.WriteString(os.TempDir() + "\n"); err != nil {
		t.Fatal(err)
	}
	select {}
}
`

// A signal removes the copy of the work tree and ends the running test.
func TestSignals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) { signalled(t, signal) })
	}
}

func signalled(t *testing.T, signal syscall.Signal) {
	t.Helper()
	root, tmp := repository(t), t.TempDir()
	write(t, filepath.Join(root, "hang", "hang_test.go"), hanging)
	write(t, filepath.Join(root, "docs", "mutations.txt"), "G1 hang TestHang\nfile: sum/sum.go\n-\treturn a + b\n+\treturn a - b\n")
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // O_RDWR: it opens at once
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0])
	program.Dir = root
	program.Env = append(os.Environ(), asMain+"=1", "TMPDIR="+tmp, "HANG_PIPE="+name)
	var out bytes.Buffer
	program.Stdout, program.Stderr = &out, &out
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := program.Wait()
		_, _ = pipe.WriteString("ended\n")
		ended <- err
	}()
	line := readLine(t, pipe)
	if line == "ended" {
		t.Fatalf("it ended before its test ran: %v\n%s", <-ended, &out)
	}
	if !strings.HasPrefix(line, tmp) {
		t.Errorf("the temporary files of the test are in %s", line)
	}
	// From here on only the hanging test has the pipe open for writing. Reading ends when the test
	// does.
	last, err := os.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	pipe.Close()
	if err := program.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; program.ProcessState.ExitCode() != 2 {
		t.Errorf("it ended with %v\n%s", err, &out)
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %q behind, %v", left, err)
	}
	if err := last.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the test runs on: %v", err)
	}
}

func readLine(t *testing.T, f *os.File) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := f.Read(b); err != nil {
			t.Fatal(err)
		}
		if b[0] == '\n' {
			return string(line)
		}
	}
}
