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
const asMain = "STRESS_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// fixture returns a folder with the module file of a library, and the files.
func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "module " + library + "\n\ngo 1.26.0\n"
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestStress_ShowsTheRunsThatFail(t *testing.T) {
	root := fixture(t, map[string]string{
		"sound/sound_test.go": "package sound\n\nimport \"testing\"\n\nfunc TestSound(t *testing.T) {}\n",
		"flaky/flaky_test.go": `package flaky

import (
	"os"
	"runtime"
	"testing"
)

func TestFlaky(t *testing.T) {
	if err := os.WriteFile(os.TempDir()+"/left", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if runtime.GOMAXPROCS(0) == 2 {
		t.Error("two")
	}
}
`,
		"envtest/envtest.go":      "package envtest\n",
		"slow/slow_test.go":       "package slow\n\nimport (\n\t_ \"" + library + "/envtest\"\n\t\"testing\"\n)\n\nfunc TestSlow(t *testing.T) {}\n",
		"none/none.go":            "package none\n",
		"examples/lone/go.mod":    "module " + library + "/examples/lone\n\ngo 1.26.0\n",
		"examples/lone/l_test.go": "package lone\n\nimport \"testing\"\n\nfunc TestLone(t *testing.T) {}\n",
	})
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var out, errs bytes.Buffer
	status := stress(t.Context(), []string{"-root", root, "-runs", "4", "-race", "0", "-light", "3", "-seed", "100", "-timeout", "1m"}, &out, &errs)
	if status != exitFailed || errs.Len() > 0 {
		t.Errorf("status %d, %s", status, &errs)
	}
	for _, want := range []string{
		"=== FAILED ./flaky after ", "exit status 1: TestFlaky\n", "two", "-test.shuffle 104",
		"again: cd ./flaky && GOWORK=off GOMAXPROCS=2 go test -count=1 -timeout=1m0s -shuffle=104 .",
		"\n./flaky ", "  TestFlaky ×1\n", "\n./sound ", "\n./examples/lone ", "\n14 runs, 1 failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %q behind, %v", left, err)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestStress_BeginsNoRunWhenTheTimeIsUp(t *testing.T) {
	root := fixture(t, map[string]string{"sound/sound_test.go": "package sound\n\nimport \"testing\"\n\nfunc TestSound(t *testing.T) {}\n"})
	var out, errs bytes.Buffer
	status := stress(t.Context(), []string{"-root", root, "-runs", "5", "-race", "0", "-for", "0s"}, &out, &errs)
	if status != exitOK || !strings.Contains(out.String(), "0 runs, 0 failed, 5 left out for lack of time\n") {
		t.Errorf("status %d, %s\n%s", status, &errs, &out)
	}
}

func TestStress_Errors(t *testing.T) {
	broken := fixture(t, map[string]string{"a/a_test.go": "package a\n\nfunc\n"})
	for args, want := range map[string]string{
		"-procs 1,0":           "-procs 1,0",
		"-packages (":          "-packages",
		"-light 0":             "must be positive",
		"-runs -1":             "must not be negative",
		"more":                 "unknown argument",
		"-root " + broken:      "a_test.go",
		"-root " + t.TempDir(): "go list",
	} {
		var errs bytes.Buffer
		if status := stress(t.Context(), strings.Fields(args), io.Discard, &errs); status != exitError || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: status %d, %q", args, status, &errs)
		}
	}
}

// hanging is a test that prints the folder of its temporary files, and runs until it is killed.
const hanging = `package hang

import (
	"os"
	"os/exec"
	"testing"
)

func TestHang(t *testing.T) {
	pipe, err := os.OpenFile(os.Getenv("HANG_PIPE"), os.O_WRONLY, 0)
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

// A signal ends the running tests with their children, and removes all files.
func TestStress_Signals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) { signalled(t, signal) })
	}
}

func signalled(t *testing.T, signal syscall.Signal) {
	t.Helper()
	root, tmp := fixture(t, map[string]string{"hang/hang_test.go": hanging}), t.TempDir()
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
	program := exec.CommandContext(ctx, os.Args[0], "-root", root, "-runs", "2", "-race", "0", "-hogs", "1", "-jobs", "1")
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
	line := make([]byte, 4096)
	n, err := pipe.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), tmp) {
		t.Fatalf("no test that runs in %s, but %q, %v\n%s", tmp, line[:n], err, &out)
	}
	// From here on only the hanging test and its child have the pipe open for writing. Reading ends
	// when they do.
	last, err := os.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	pipe.Close()
	if err := program.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; program.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v\n%s", err, &out)
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %q behind, %v", left, err)
	}
	if err := last.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the test or its child runs on: %v", err)
	}
}
