// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// copyTree copies the work tree to a new directory, including uncommitted and excluding ignored
// files.
func copyTree(ctx context.Context, root string) (string, error) {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	list.Stderr = os.Stderr
	names, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("listing the work tree: %w", err)
	}
	tree, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(tree, name)); err != nil {
			return "", errors.Join(err, os.RemoveAll(tree))
		}
	}
	return tree, nil
}

// copyFile skips files that were deleted but are still tracked by git.
func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// replaceFiles replaces files of the tree. The returned function undoes it, and is never nil.
func replaceFiles(tree string, files map[string]string) (undo func() error, err error) {
	before := map[string][]byte{}
	undo = func() error {
		var errs []error
		for name, text := range before {
			errs = append(errs, os.WriteFile(name, text, 0o644))
		}
		return errors.Join(errs...)
	}
	for file, text := range files {
		name := filepath.Join(tree, file)
		original, err := os.ReadFile(name)
		if err != nil {
			return undo, err
		}
		before[name] = original
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return undo, err
		}
	}
	return undo, nil
}
