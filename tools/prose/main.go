// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command prose fails if the text of the repository breaks one of these rules:
//
//   - No words of a short list, which make text hard to read.
//   - At most 100 columns in lines with a comment, tabs counted as 4.
//   - No guarantee numbers in guides, nor in the strings of production code.
//
// It reads the comments of all Go files, and all Markdown except designs/. With folders it reads
// only files below them:
//
//	prose [folder ...]
//
// Each finding has file, line, text and remedy. Code is exempt: text in backquotes, fenced blocks,
// and comment lines that a tab indents. So are generated files, testdata, directives and the output
// of examples.
//
// No linter of golangci-lint does this. lll also measures lines of code. misspell takes single
// words without a reason. godox reads only the beginning of a comment, and forbidigo only
// identifiers.
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
