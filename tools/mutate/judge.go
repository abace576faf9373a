// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

// judge runs every entry's test without and with its changes, and prints a line for each. Each of
// the trees has one entry at a time.
func judge(ctx context.Context, w io.Writer, trees []goTest, entries []mutation.Entry) (survived bool, err error) {
	took, err := passAll(ctx, trees, entries)
	if err != nil {
		return false, err
	}
	var survivors []string
	var errs []error
	var mu sync.Mutex
	each(trees, entries, func(t goTest, e mutation.Entry) {
		start := time.Now()
		// A change may let the test run for ever.
		t.timeout = min(t.timeout, 2*took[e.Dir]+30*time.Second)
		result, err := judgeOne(ctx, t, e)
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			result = "ERROR"
			errs = append(errs, fmt.Errorf("entry %s in line %d: %w", e.Guarantee, e.Line, err))
		}
		if result == "SURVIVED" {
			survivors = append(survivors, fmt.Sprintf("%s (%s)", e.Guarantee, e.Test))
		}
		fmt.Fprintf(w, "%-4s %-16s %-56s %-9s %5.1fs\n", e.Guarantee, e.Dir, e.Test, result, time.Since(start).Seconds())
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	killed := len(entries) - len(survivors) - len(errs)
	fmt.Fprintf(w, "%d mutations of %d guarantees: %d noticed, %d survived, %d in error\n",
		len(entries), len(guarantees(entries)), killed, len(survivors), len(errs))
	if len(survivors) > 0 {
		fmt.Fprintf(w, "survived: %s\n", strings.Join(survivors, ", "))
	}
	return len(survivors) > 0, errors.Join(errs...)
}

// each calls f for every item, for as many at once as there are trees.
func each[T any](trees []goTest, items []T, f func(goTest, T)) {
	queue := make(chan T, len(items))
	for _, item := range items {
		queue <- item
	}
	close(queue)
	var workers sync.WaitGroup
	for _, t := range trees {
		workers.Go(func() {
			for item := range queue {
				f(t, item)
			}
		})
	}
	workers.Wait()
}

// judgeOne returns "noticed" or "SURVIVED".
func judgeOne(ctx context.Context, t goTest, e mutation.Entry) (result string, err error) {
	undo, err := mutate(t.tree, e.Changes)
	defer func() { err = errors.Join(err, undo()) }()
	if err != nil {
		return "", err
	}
	r, err := t.run(ctx, e.Dir, pattern(e.Test))
	switch {
	case err != nil:
		return "", err
	case !r.built:
		return "", fmt.Errorf("the changed code does not compile:\n%s", r.output)
	case r.tests[e.Test] == "":
		return "", fmt.Errorf("with the change, %s does not run:\n%s", e.Test, r.output)
	case r.failed:
		return "noticed", nil
	default:
		return "SURVIVED", nil
	}
}

// passAll checks that every cited test runs and passes on the unchanged code. It returns the time
// for each package.
func passAll(ctx context.Context, trees []goTest, entries []mutation.Entry) (took map[string]time.Duration, err error) {
	byDir := map[string][]mutation.Entry{}
	for _, e := range entries {
		byDir[e.Dir] = append(byDir[e.Dir], e)
	}
	took = map[string]time.Duration{}
	var errs []error
	var mu sync.Mutex
	each(trees, slices.Collect(maps.Values(byDir)), func(t goTest, cited []mutation.Entry) {
		start := time.Now()
		err := passOne(ctx, t, cited)
		mu.Lock()
		defer mu.Unlock()
		took[cited[0].Dir] = time.Since(start)
		errs = append(errs, err)
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return took, errors.Join(errs...)
}

// passOne is passAll for the entries of one package.
func passOne(ctx context.Context, t goTest, cited []mutation.Entry) error {
	var names []string
	for _, e := range cited {
		names = append(names, e.Function())
	}
	slices.Sort(names)
	dir := cited[0].Dir
	r, err := t.run(ctx, dir, "^("+strings.Join(slices.Compact(names), "|")+")$")
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

func guarantees(entries []mutation.Entry) []string {
	var names []string
	for _, e := range entries {
		if !slices.Contains(names, e.Guarantee) {
			names = append(names, e.Guarantee)
		}
	}
	return names
}
