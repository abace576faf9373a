// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Ctrl-C at any time ends the program and everything that it has started.
func TestCtrlC(t *testing.T) {
	for _, c := range []struct {
		when string // the text that has just been printed
		args []string
	}{
		{"kube-apiserver", []string{"-once", "-cluster"}},
		{"API server", []string{"-once", "-cluster"}},
		{"create", []string{"-once", "-cluster"}},
		{"delete", []string{"-once", "-cluster"}},
		{"Ctrl-C stops", []string{"-cluster"}},
		{"create", []string{"-once"}},
		{"Ctrl-C stops", nil},
	} {
		t.Run(c.when+" "+strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			p := startMain(t, c.args...)
			p.waitFor(c.when)
			family := descendants(t, p.cmd.Process.Pid)
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			err := p.wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
				t.Errorf("it ended with %v\n%s", err, &p.stderr)
			}
			wantSentence(t, p.stderr.String(), "interrupt", "has stopped")
			if c.when != "kube-apiserver" && slices.Contains(c.args, "-cluster") && len(family) < 3 {
				t.Errorf("it had only the children %v: this test looks at the wrong thing", family)
			}
			for _, child := range family {
				if now, err := processAt(child.pid); err == nil && now == child {
					t.Errorf("orphan: %v", child)
				}
			}
		})
	}
}

// program is the program in its own process.
type program struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
	t      *testing.T
}

func startMain(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...), t: t}
	p.cmd.Env = append(os.Environ(), asMain+"=1")
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// waitFor reads lines until one contains the text.
func (p *program) waitFor(text string) {
	p.t.Helper()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	p.t.Fatalf("it ended before %q: %v\n%s", text, p.cmd.Wait(), &p.stderr)
}

// wait reads the remaining output and returns how the program ended.
func (p *program) wait() error {
	for p.lines.Scan() {
	}
	return p.cmd.Wait()
}

// proc is a process, distinguished by its start time from a later one with the same number.
type proc struct {
	pid, parent int
	start       string
	name        string
}

func processAt(pid int) (proc, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{}, err
	}
	// pid (name) state parent ... with the start time as field 22. The name may have spaces.
	before, after, _ := strings.Cut(string(raw), "(")
	end := strings.LastIndex(after, ")")
	fields := strings.Fields(after[end+1:])
	p := proc{name: after[:end], start: fields[19]}
	if _, err := fmt.Sscan(before, &p.pid); err != nil {
		return proc{}, err
	}
	_, err = fmt.Sscan(fields[1], &p.parent)
	return p, err
}

// descendants returns the children of a process, and theirs.
func descendants(t *testing.T, pid int) []proc {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var all []proc
	for _, dir := range dirs {
		var n int
		if _, err := fmt.Sscanf(dir, "/proc/%d", &n); err != nil {
			t.Fatal(err)
		}
		if p, err := processAt(n); err == nil { // else it has ended since
			all = append(all, p)
		}
	}
	family := map[int]bool{pid: true}
	var found []proc
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if family[p.parent] && !family[p.pid] {
				family[p.pid], grown = true, true
				found = append(found, p)
			}
		}
	}
	slices.SortFunc(found, func(a, b proc) int { return a.pid - b.pid })
	return found
}
