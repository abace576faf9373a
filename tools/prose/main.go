// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command prose fails if the text of the repository breaks one of four rules. It reads the comments
// of all Go files and all Markdown except designs/.
//
//	prose [folder ...]
//
// The rules are a list of words, 100 columns for comments, no guarantee numbers in guides, and none
// in the strings of production code. Each finding names file, line, text and remedy. Code is exempt:
// backquotes, fenced blocks, and comment lines that a tab indents. So are generated files, testdata,
// directives and the output of examples. With folders, only findings below them count.
//
// golangci-lint has no linter for this. lll measures lines of code as well, misspell knows single
// words without a reason, godox only sees how a comment begins, and forbidigo sees identifiers.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	n, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	case n > 0:
		fmt.Fprintf(os.Stderr, "prose: %d findings\n", n)
		os.Exit(1)
	}
}

// run prints the findings in the repository around the current directory and returns their number.
func run(ctx context.Context, folders []string, out io.Writer) (int, error) {
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return 0, err
	}
	names, err := git(ctx, root, "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.md")
	if err != nil {
		return 0, err
	}
	table, err := os.ReadFile(filepath.Join(root, "docs/guarantees.md"))
	if err != nil {
		return 0, err
	}
	numbers := guaranteeNumbers(string(table))
	n := 0
	for name := range strings.Lines(names) {
		name = strings.TrimSpace(name)
		if exempt(name) || !below(name, folders) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, but not staged
		}
		if err != nil {
			return n, err
		}
		found, err := check(name, string(text), numbers)
		if err != nil {
			return n, err
		}
		for _, f := range found {
			fmt.Fprintf(out, "%s:%d: %s\n", name, f.line, f.message)
		}
		n += len(found)
	}
	return n, nil
}

// exempt reports whether a file is a record, test data, or generated.
func exempt(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "designs" || part == "testdata" || part == "applyconfiguration" || strings.HasPrefix(part, "zz_") {
			return true
		}
	}
	return false
}

func below(name string, folders []string) bool {
	for _, folder := range folders {
		if strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/") {
			return true
		}
	}
	return len(folders) == 0
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
