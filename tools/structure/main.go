// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command structure prints how simple the library is, in numbers. For each package it prints lines,
// files, and the calls between files against the main direction. For the whole library it prints
// lines that the smallest operator links, mutexes, fields that are functions, exported names and
// methods, and the largest types.
//
//	structure [-before commit] [-arrows package]
//
// With -before it prints three columns: that commit, the working tree's packages that descend from
// it, and all packages of the working tree. The difference between the last two is new packages.
// With -arrows it lists, for one package such as cache, the order of its files and the uses against
// it.
//
// A package descends from the commit if it existed there, or if git's history since then renames a
// file of such a package into it, in one step or several. Renames of tests do not count.
//
// The library is every package that a user's program links. It excludes tests, test support,
// commands and examples.
//
// An arrow leads from a file to each other file of its package whose functions, types, variables or
// constants it names. The main direction is the file order with the fewest arrows running back. It
// is found by a search, so a better order may exist.
package main

import (
	"context"
	"errors"
	"flag"
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
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("structure", flag.ContinueOnError)
	before := flags.String("before", "", "a `commit` to compare with")
	arrows := flags.String("arrows", "", "list the files and back arrows of one `package`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	now, err := measure(ctx, root)
	if err != nil {
		return err
	}
	if *arrows != "" {
		p, ok := now.packages[*arrows]
		if !ok {
			return fmt.Errorf("-arrows %s: the library has no such package", *arrows)
		}
		printArrows(out, p)
		return nil
	}
	if *before == "" {
		printTable(out, column{"now", now})
		return nil
	}
	then, err := measureCommit(ctx, root, *before)
	if err != nil {
		return err
	}
	from, err := moves(ctx, root, *before)
	if err != nil {
		return err
	}
	printTable(out, column{"before", then}, column{"now, packages of before", now.descended(then, from)}, column{"now, all", now})
	return nil
}

// measureCommit measures a commit in its own work tree, which it removes.
func measureCommit(ctx context.Context, root, commit string) (lib *library, err error) {
	dir, err := os.MkdirTemp("", "structure")
	if err != nil {
		return nil, err
	}
	tree := filepath.Join(dir, "tree")
	if _, err := git(ctx, root, "worktree", "add", "--detach", tree, commit); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		_, gone := git(context.WithoutCancel(ctx), root, "worktree", "remove", "--force", tree)
		err = errors.Join(err, gone, os.RemoveAll(dir))
	}()
	return measure(ctx, tree)
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
		}
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}
