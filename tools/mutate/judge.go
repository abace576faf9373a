// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A runner runs the tests of a package that match a pattern.
type runner interface {
	run(ctx context.Context, dir, pattern string) (report, error)
}

// judge runs every entry's test without and with its changes, and prints a line for each.
func judge(ctx context.Context, w io.Writer, tests runner, tree string, entries []entry) (survived bool, err error) {
	if err := passAll(ctx, tests, entries); err != nil {
		return false, err
	}
	var survivors []string
	var errs []error
	for _, e := range entries {
		start := time.Now()
		result, err := judgeOne(ctx, tests, tree, e)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			result = "ERROR"
			errs = append(errs, fmt.Errorf("entry %s in line %d: %w", e.guarantee, e.line, err))
		}
		if result == "SURVIVED" {
			survivors = append(survivors, fmt.Sprintf("%s (%s)", e.guarantee, e.test))
		}
		fmt.Fprintf(w, "%-4s %-16s %-56s %-9s %5.1fs\n", e.guarantee, e.dir, e.test, result, time.Since(start).Seconds())
	}
	killed := len(entries) - len(survivors) - len(errs)
	fmt.Fprintf(w, "%d mutations of %d guarantees: %d noticed, %d survived, %d in error\n",
		len(entries), len(guarantees(entries)), killed, len(survivors), len(errs))
	if len(survivors) > 0 {
		fmt.Fprintf(w, "survived: %s\n", strings.Join(survivors, ", "))
	}
	return len(survivors) > 0, errors.Join(errs...)
}

// judgeOne returns "noticed" or "SURVIVED".
func judgeOne(ctx context.Context, tests runner, tree string, e entry) (result string, err error) {
	undo, err := mutate(tree, e.changes)
	defer func() { err = errors.Join(err, undo()) }()
	if err != nil {
		return "", err
	}
	r, err := tests.run(ctx, e.dir, pattern(e.test))
	switch {
	case err != nil:
		return "", err
	case !r.built:
		return "", fmt.Errorf("the changed code does not compile:\n%s", r.output)
	case r.tests[e.test] == "":
		return "", fmt.Errorf("with the change, %s does not run:\n%s", e.test, r.output)
	case r.failed:
		return "noticed", nil
	default:
		return "SURVIVED", nil
	}
}

// passAll checks that every cited test runs and passes on the unchanged code.
func passAll(ctx context.Context, tests runner, entries []entry) error {
	byDir := map[string][]entry{}
	for _, e := range entries {
		byDir[e.dir] = append(byDir[e.dir], e)
	}
	for dir, cited := range byDir {
		var names []string
		for _, e := range cited {
			names = append(names, e.function())
		}
		slices.Sort(names)
		r, err := tests.run(ctx, dir, "^("+strings.Join(slices.Compact(names), "|")+")$")
		if err != nil {
			return err
		}
		for _, e := range cited {
			if state := r.tests[e.test]; state != "pass" {
				if state == "" {
					state = "not there"
				}
				return fmt.Errorf("entry %s in line %d: without a change, %s in %s should pass and is: %s\n%s",
					e.guarantee, e.line, e.test, dir, state, r.output)
			}
		}
		if r.failed {
			return fmt.Errorf("without a change, the tests of %s fail:\n%s", dir, r.output)
		}
	}
	return nil
}

func guarantees(entries []entry) []string {
	var names []string
	for _, e := range entries {
		if !slices.Contains(names, e.guarantee) {
			names = append(names, e.guarantee)
		}
	}
	return names
}
