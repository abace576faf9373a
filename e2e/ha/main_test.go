// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// asMain in the environment makes the test binary the program itself.
const asMain = "HA_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) != "" || os.Getenv(asMain) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// driverProcess is the program in its own process.
type driverProcess struct {
	*exec.Cmd

	t      *testing.T
	stdout *bufio.Reader
	stderr *os.File // also of the replicas, under -v: it ends when the last of them has
	said   bytes.Buffer
}

func startMain(t *testing.T, args ...string) *driverProcess {
	t.Helper()
	p := &driverProcess{Cmd: exec.Command(os.Args[0], args...), t: t}
	p.Env = append(os.Environ(), asMain+"=1")
	out, err := p.StdoutPipe()
	testkit.NoError(t, err)
	p.stdout = bufio.NewReader(io.TeeReader(out, &p.said))
	var theirs *os.File
	p.stderr, theirs, err = os.Pipe()
	testkit.NoError(t, err)
	p.Stderr = theirs
	testkit.NoError(t, p.Start())
	theirs.Close()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		p.stderr.Close()
	})
	return p
}

// waitFor reads lines until one contains the text.
func (p *driverProcess) waitFor(text string) {
	p.t.Helper()
	for {
		line, err := p.stdout.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			p.t.Fatalf("it ended before %q:\n%s", text, p.finish())
		}
	}
}

// finish returns the program's whole output, when it and its replicas have ended.
func (p *driverProcess) finish() string {
	errs, _ := io.ReadAll(p.stderr)
	_, _ = io.Copy(io.Discard, p.stdout)
	_ = p.Wait()
	return p.said.String() + "\n" + string(errs)
}

// Whatever happens to a leader, the next one takes over, no two lead at once, and no two write an
// object that is written with its version (L1, L2, L3, L4, L5, L6).
func TestL1_L2_LeadersInTrouble(t *testing.T) {
	t.Parallel()
	p := startMain(t, "-rounds", "6", "-lease", "1s")
	got := p.finish()
	if p.ProcessState.ExitCode() != exitOK {
		t.Fatalf("%v\n%s", p.ProcessState, got)
	}
	for i, x := range troubles {
		if !regexp.MustCompile(`(?m)^ +\d+  ` + x.name + ` +\S+ +\S+ +[0-9.]+ m?s`).MatchString(got) {
			t.Errorf("there is no round %d of %q", i+1, x.name)
		}
	}
	for _, want := range []string{"  0 passed the fence when the trust in their term was over\n", "the network held it +unprotected", "All promises were kept\\."} {
		// How wide a column is depends on its other rows.
		testkit.Equal(t, regexp.MustCompile(want).MatchString(got), true, fmt.Sprintf("it does not say %q", want))
	}
	if t.Failed() {
		t.Log(got)
	}
}

// The judge detects a missing fence: a suspended leader continues to write.
func TestL2_Unfenced(t *testing.T) {
	t.Parallel()
	p := startMain(t, "-rounds", "3", "-lease", "1s", "-unfenced")
	got := p.finish()
	if p.ProcessState.ExitCode() != exitFailure || !strings.Contains(got, "BROKEN promises") || !strings.Contains(got, "after the trust was over") {
		t.Errorf("%v\n%s", p.ProcessState, got)
	}
}

// A killed driver leaves no replica, not even a suspended one.
func TestKilledDriver(t *testing.T) {
	t.Parallel()
	p := startMain(t, "-lease", "30s", "-rounds", "3", "-v", "-first", "suspend")
	p.waitFor("suspended")
	testkit.NoError(t, p.Process.Kill())
	p.finish() // returns when its standard error is closed everywhere
}

func TestInterruptedDriver(t *testing.T) {
	t.Parallel()
	p := startMain(t, "-v", "-lease", "10s", "-first", "kill")
	p.waitFor("round 1:")
	testkit.NoError(t, p.Process.Signal(syscall.SIGINT))
	if got := p.finish(); p.ProcessState.ExitCode() != exitInterrupted || !strings.Contains(got, "all that was started has stopped") {
		t.Errorf("%v\n%s", p.ProcessState, got)
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-lease 1500ms":  "whole seconds",
		"-lease 0s":      "whole seconds",
		"-rounds 0":      "must be positive",
		"-groups -1":     "must be positive",
		"more":           "unknown argument",
		"-first trouble": "-first",
		"-nonsense":      "not defined",
	} {
		var errs bytes.Buffer
		if _, err := parse(strings.Fields(args), &errs); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "-help") {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := parse([]string{"-help"}, io.Discard); err == nil || errors.Is(err, errBroken) {
		t.Error(err)
	}
}
