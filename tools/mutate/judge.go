// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

// A jury judges entries in a tree.
type jury struct {
	goTest
	mutants  map[int]mutantOf // by number, from 1
	variants variants
	took     map[string]time.Duration // the unchanged tests of a package

	mu        sync.Mutex
	out       io.Writer
	survivors []string
	errs      []error
}

// A mutantOf is the mutant of an entry.
type mutantOf struct {
	mutation.Entry
	files    map[string]string // changed
	together bool              // the program of the variants has it
}

// judge runs every entry's test without and with its changes, and prints a line for each.
func judge(ctx context.Context, w io.Writer, t goTest, entries []mutation.Entry) (survived bool, err error) {
	j := &jury{goTest: t, out: w, mutants: map[int]mutantOf{}, variants: variants{t.tree, map[string]*variantFile{}}, took: map[string]time.Duration{}}
	j.apply(entries)
	if err := j.prepare(ctx); err != nil {
		return false, errors.Join(append(j.errs, err)...)
	}
	var together, alone []int
	for _, n := range slices.Sorted(maps.Keys(j.mutants)) {
		if j.mutants[n].together {
			together = append(together, n)
		} else {
			alone = append(alone, n)
		}
	}
	each(together, func(worker, n int) { j.judgeOne(ctx, worker, n) })
	for _, n := range alone {
		if err := j.judgeAlone(ctx, n); err != nil {
			return false, errors.Join(append(j.errs, err)...)
		}
	}
	if ctx.Err() != nil {
		return false, errors.Join(append(j.errs, ctx.Err())...)
	}
	fmt.Fprintf(w, "%d mutations of %d guarantees: %d noticed, %d survived, %d in error\n",
		len(entries), len(guarantees(entries)), len(entries)-len(j.survivors)-len(j.errs), len(j.survivors), len(j.errs))
	if len(j.survivors) > 0 {
		fmt.Fprintf(w, "survived: %s\n", strings.Join(j.survivors, ", "))
	}
	return len(j.survivors) > 0, errors.Join(j.errs...)
}

// prepare compiles the tests with all variants, and sees them pass on the unchanged code.
func (j *jury) prepare(ctx context.Context) error {
	if err := errors.Join(os.Mkdir(filepath.Join(j.tree, "_bin"), 0o700), j.variants.write()); err != nil {
		return err
	}
	if err := j.compileAll(ctx); err != nil {
		return err
	}
	return j.passAll(ctx)
}

// apply makes the mutants.
func (j *jury) apply(entries []mutation.Entry) {
	code := mutation.NewCode(j.tree)
	for i, e := range entries {
		m, err := code.Apply(e.Changes)
		if err != nil {
			j.report(e, "", err, 0)
			continue
		}
		together, err := j.variants.add(i+1, m.Files)
		if err != nil {
			j.report(e, "", err, 0)
			continue
		}
		j.mutants[i+1] = mutantOf{e, m.Files, together}
	}
}

// compileAll compiles the tests of each package. Variants that do not compile are errors.
func (j *jury) compileAll(ctx context.Context) error {
	dirs := map[string]bool{}
	for _, m := range j.mutants {
		dirs[m.Dir] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		for {
			text, err := j.compile(ctx, dir)
			if err != nil {
				return err
			}
			if text == "" {
				break
			}
			if !j.reject(dir, text) {
				return fmt.Errorf("the tests of %s do not compile:\n%s", dir, text)
			}
			if err := j.variants.write(); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: .*`)
	mutantNamed  = regexp.MustCompile(`mutant(\d+)_`)
)

// reject removes the mutants in which the compiler has found errors.
func (j *jury) reject(dir, text string) (found bool) {
	module, _ := j.module(dir)
	errs := map[int]string{} // of a mutant, before the first one leaves its file
	for _, match := range compileError.FindAllStringSubmatch(text, -1) {
		line, _ := strconv.Atoi(match[2]) // of digits
		errs[j.variants.at(filepath.Join(module, match[1]), line)] += match[0] + "\n"
	}
	if delete(errs, 0); len(errs) == 0 {
		// The cycle of an initialization has the place of the variable.
		for _, match := range mutantNamed.FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(match[1]) // of digits
			errs[n] = text
		}
	}
	for n, text := range errs {
		if m, ok := j.mutants[n]; ok {
			found = true
			j.variants.drop(n)
			delete(j.mutants, n)
			j.report(m.Entry, "", fmt.Errorf("the changed code does not compile:\n%s", text), 0)
		}
	}
	return found
}

// passAll checks that every cited test runs and passes on the unchanged code.
func (j *jury) passAll(ctx context.Context) error {
	byDir := map[string][]mutation.Entry{}
	for _, m := range j.mutants {
		byDir[m.Dir] = append(byDir[m.Dir], m.Entry)
	}
	var errs []error
	each(slices.Sorted(maps.Keys(byDir)), func(worker int, dir string) {
		start := time.Now()
		err := j.passOne(ctx, worker, byDir[dir])
		j.mu.Lock()
		defer j.mu.Unlock()
		j.took[dir] = time.Since(start)
		errs = append(errs, err)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// passOne is passAll for the entries of one package.
func (j *jury) passOne(ctx context.Context, worker int, cited []mutation.Entry) error {
	var names []string
	for _, e := range cited {
		names = append(names, e.Function())
	}
	slices.Sort(names)
	dir := cited[0].Dir
	r, err := j.run(ctx, worker, dir, "^("+strings.Join(slices.Compact(names), "|")+")$", 0)
	if err != nil {
		return err
	}
	for _, e := range cited {
		if state := r.tests[e.Test]; state != "pass" {
			if state == "" {
				state = "not there"
			}
			return fmt.Errorf("entry %s in line %d: without a change, %s in %s should pass and is: %s\n%s",
				e.Guarantee, e.Line, e.Test, dir, state, r.output)
		}
	}
	if r.failed {
		return fmt.Errorf("without a change, the tests of %s fail:\n%s", dir, r.output)
	}
	return nil
}

// judgeOne runs the test of mutant n, which is compiled.
func (j *jury) judgeOne(ctx context.Context, worker, n int) {
	start, m := time.Now(), j.mutants[n]
	e := m.Entry
	t := j.goTest
	// A change may let the test run for ever.
	t.timeout = min(t.timeout, 2*j.took[e.Dir]+30*time.Second)
	r, err := t.run(ctx, worker, e.Dir, pattern(e.Test), n)
	if ctx.Err() != nil {
		return
	}
	result := "SURVIVED"
	switch {
	case err != nil:
	case r.tests[e.Test] == "":
		err = fmt.Errorf("with the change, %s does not run:\n%s", e.Test, r.output)
	case r.failed && m.together && !r.reached:
		err = fmt.Errorf("%s fails before it gets to the changed code:\n%s", e.Test, r.output)
	case r.failed && r.timeout:
		result = "timeout"
	case r.failed:
		result = "noticed"
	case m.together && !r.reached:
		result = "SURVIVED, not reached"
	}
	j.report(e, result, err, time.Since(start))
}

// judgeAlone compiles mutant n as a program of its own, and runs its test. After an error, the tree
// is not usable.
func (j *jury) judgeAlone(ctx context.Context, n int) (err error) {
	m := j.mutants[n]
	undo, err := replaceFiles(j.tree, m.files)
	defer func() { err = errors.Join(err, undo()) }()
	if err != nil {
		return err
	}
	text, err := j.compile(ctx, m.Dir)
	switch {
	case err != nil:
		return err
	case text != "":
		j.report(m.Entry, "", fmt.Errorf("the changed code does not compile:\n%s", text), 0)
	default:
		j.judgeOne(ctx, 0, n)
	}
	return nil
}

// report prints the result of an entry.
func (j *jury) report(e mutation.Entry, result string, err error, took time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil:
		result = "ERROR"
		j.errs = append(j.errs, fmt.Errorf("entry %s in line %d: %w", e.Guarantee, e.Line, err))
	case strings.HasPrefix(result, "SURVIVED"):
		j.survivors = append(j.survivors, fmt.Sprintf("%s (%s)", e.Guarantee, e.Test))
	}
	fmt.Fprintf(j.out, "%-4s %-16s %-56s %-9s %5.1fs\n", e.Guarantee, e.Dir, e.Test, result, took.Seconds())
}

// each calls f for every item, in several workers.
func each[T any](items []T, f func(worker int, item T)) {
	queue := make(chan T, len(items))
	for _, item := range items {
		queue <- item
	}
	close(queue)
	var workers sync.WaitGroup
	for worker := range atOnce {
		workers.Go(func() {
			for item := range queue {
				f(worker, item)
			}
		})
	}
	workers.Wait()
}

func guarantees(entries []mutation.Entry) []string {
	var names []string
	for _, e := range entries {
		if !slices.Contains(names, e.Guarantee) {
			names = append(names, e.Guarantee)
		}
	}
	return names
}
