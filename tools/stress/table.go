// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// shown limits the failures of a package that are printed with their output.
	shown = 3
	// longest limits the printed output of a run, in bytes. The end says most.
	longest = 64 << 10
)

// A table has the results of all runs. Its methods are safe for concurrent use.
type table struct {
	mu   sync.Mutex // guards rows and the output
	rows map[row]*result
}

type row struct {
	name string
	race bool
}

// A result summarizes the runs of one package.
type result struct {
	runs, failed, left int
	longest, total     time.Duration
	tests              map[string]int // number of failures by test
}

func (t *table) ofLocked(r *run) *result {
	if t.rows == nil {
		t.rows = map[row]*result{}
	}
	at := row{r.name, r.race}
	if t.rows[at] == nil {
		t.rows[at] = &result{tests: map[string]int{}}
	}
	return t.rows[at]
}

// leaveOut counts a run that was skipped for lack of time.
func (t *table) leaveOut(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ofLocked(r).left++
}

// add counts a run, and prints it if it failed.
func (t *table) add(w io.Writer, o *options, r *run, took time.Duration, out []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.ofLocked(r)
	s.runs++
	s.total += took
	s.longest = max(s.longest, took)
	if err == nil {
		return
	}
	s.failed++
	names := failures(out)
	for _, n := range names {
		s.tests[n]++
	}
	fmt.Fprintf(w, "\n=== FAILED %s after %s: %v: %s\n%s\n", title(r.name, r.race), took.Round(time.Millisecond), err, strings.Join(names, ", "), again(o, r))
	if s.failed > shown {
		return
	}
	if cut := len(out) - longest; cut > 0 {
		fmt.Fprintf(w, "(%d bytes omitted)\n", cut)
		out = out[cut:]
	}
	fmt.Fprintf(w, "%s=== end of %s\n\n", out, title(r.name, r.race))
}

var failLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(WARNING: DATA RACE|panic: .*|goleak: .*)$`)

// failures returns the failed tests and other problems, such as panics and data races.
func failures(out []byte) []string {
	var names []string
	for _, m := range failLine.FindAllSubmatch(out, -1) {
		if name := string(bytes.Join(m[1:], nil)); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// again returns the command that repeats a run.
func again(o *options, r *run) string {
	args := fmt.Sprintf("-count=1 -timeout=%s -shuffle=%d", o.timeout, r.seed)
	if r.race {
		args += " -race"
	}
	if o.run != "" {
		args += " -run='" + o.run + "'"
	}
	return fmt.Sprintf("again: cd %s && %s GOMAXPROCS=%d go test %s .   # next to %d hogs", r.name, strings.Join(r.env, " "), r.procs, args, o.hogs)
}

func title(name string, race bool) string {
	if race {
		return name + " (race)"
	}
	return name
}

func (t *table) failed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, s := range t.rows {
		n += s.failed
	}
	return n
}

// print prints a line for each package.
func (t *table) print(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "%-40s %5s %6s %9s %9s\n", "package", "runs", "failed", "mean", "longest")
	var runs, failed, left int
	order := func(a, b row) int { return strings.Compare(title(a.name, a.race), title(b.name, b.race)) }
	for _, at := range slices.SortedFunc(maps.Keys(t.rows), order) {
		s := t.rows[at]
		runs, failed, left = runs+s.runs, failed+s.failed, left+s.left
		mean := s.total / time.Duration(max(1, s.runs))
		fmt.Fprintf(w, "%-40s %5d %6d %8.1fs %8.1fs", title(at.name, at.race), s.runs, s.failed, mean.Seconds(), s.longest.Seconds())
		for _, name := range slices.Sorted(maps.Keys(s.tests)) {
			fmt.Fprintf(w, "  %s ×%d", name, s.tests[name])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d runs, %d failed", runs, failed)
	if left > 0 {
		fmt.Fprintf(w, ", %d left out for lack of time", left)
	}
	fmt.Fprintln(w)
}
