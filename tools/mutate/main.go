// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutate shows that each guarantee has a test that can fail. For each entry of
// docs/mutations.txt it breaks one place of the code in a copy of the work tree, and runs the cited
// test. The test must pass before and fail after the change. mutate exits with 1 if a mutation
// survives, and with 2 if an entry cannot be judged. After SIGINT or SIGTERM it exits with 2, and
// leaves neither a copy nor a running test.
//
// The tests of a package are compiled once. They contain the changed functions of all entries, and
// a variable of the environment chooses an entry. A test that fails before it gets to the changed
// code is an error. An entry that changes a type, a variable or a constant has a program of its
// own. A test that has no end after the change is noticed as a "timeout". Two tests run at once.
//
//	mutate [-only W1,W2] [-file docs/mutations.txt] [-timeout 5m]
//	mutate -table
//
// Package tools/internal/mutation describes the entries.
//
// With -table, it writes docs/guarantees.md and docs/guarantees-tests.md from the package docs, the
// names of tests and the entries. A promise is an item of the list "Guarantees" in a doc.go:
//
//	//   - W1: At most one worker holds a key. Details: what the table leaves out.
//
// Each number has one doc and an entry. Its tests have names such as TestW1_OneHolder or, for two
// promises, TestW1_W2_OneHolder. It also prints the entries whose code has moved or changed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

// atOnce is the number of entries that are judged at the same time.
const atOnce = 2

func main() {
	file := flag.String("file", "", "`file` of the entries; default docs/mutations.txt")
	only := flag.String("only", "", "comma-separated `guarantees`; default all")
	timeout := flag.Duration("timeout", 5*time.Minute, "`limit` of one run of tests; the unchanged code runs all cited tests of a package at once, and changed code gets less if they are faster")
	table := flag.Bool("table", false, "write docs/guarantees.md and docs/guarantees-tests.md, and run nothing")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survived, err := run(ctx, *file, *only, *timeout, *table)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(2)
	case survived:
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, file, only string, timeout time.Duration, table bool) (survived bool, err error) {
	root, err := findRoot()
	if err != nil {
		return false, err
	}
	if file == "" {
		file = filepath.Join(root, "docs", "mutations.txt")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	entries, err := mutation.Parse(string(text))
	if err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	if table {
		return false, errors.Join(writeTables(root, entries), printDrifted(os.Stdout, root, entries))
	}
	if entries, err = choose(entries, only); err != nil {
		return false, err
	}
	tree, err := copyTree(ctx, root)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	return judge(ctx, os.Stdout, goTest{tree, timeout}, entries)
}

// findRoot returns the repository that contains the current directory.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.work in this directory or above it; run mutate inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}

func choose(entries []mutation.Entry, only string) ([]mutation.Entry, error) {
	if only == "" {
		return entries, nil
	}
	var chosen []mutation.Entry
	for _, guarantee := range strings.Split(only, ",") {
		guarantee = strings.TrimSpace(guarantee)
		before := len(chosen)
		for _, e := range entries {
			if e.Guarantee == guarantee {
				chosen = append(chosen, e)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("no entry for guarantee %q", guarantee)
		}
	}
	return chosen, nil
}
