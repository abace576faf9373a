// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// A repository is a git working tree.
type repository struct{ root string }

func (r repository) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = r.root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// lastVersion returns the highest version of the library that has a tag, or "".
func (r repository) lastVersion(ctx context.Context) (string, error) {
	tags, err := r.git(ctx, "tag", "--list", "v*")
	if err != nil {
		return "", err
	}
	last := ""
	for _, tag := range strings.Fields(tags) {
		if semver.IsValid(tag) && (last == "" || semver.Compare(tag, last) > 0) {
			last = tag
		}
	}
	return last, nil
}

// createTags creates all tags, or none.
func (r repository) createTags(ctx context.Context, commit string, tags []string) error {
	for i, tag := range tags {
		if _, err := r.git(ctx, "tag", "--annotate", "--message=Setpoint "+filepath.Base(tag), tag, commit); err != nil {
			err = fmt.Errorf("release: cannot create the tag %s, and no tag was created: %w", tag, err)
			for _, created := range tags[:i] {
				_, undone := r.git(context.WithoutCancel(ctx), "tag", "--delete", created)
				err = errors.Join(err, undone)
			}
			return err
		}
	}
	return nil
}

// tracked returns the paths in the commit that match the patterns of git.
func (r repository) tracked(ctx context.Context, patterns ...string) ([]string, error) {
	names, err := r.git(ctx, append([]string{"ls-files", "--"}, patterns...)...)
	return strings.Fields(names), err
}

func (r repository) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(name)))
	return string(text), err
}

// checkTree requires that the commit has everything that the checks read.
func (r repository) checkTree(ctx context.Context, _ string) ([]string, error) {
	status, err := r.git(ctx, "status", "--porcelain")
	if err != nil || status == "" {
		return nil, err
	}
	first, _, more := strings.Cut(status, "\n")
	_, name, _ := strings.Cut(strings.TrimSpace(first), " ")
	if more {
		name += " and others"
	}
	return []string{fmt.Sprintf("The working tree has changes that are not committed, in %s: commit or stash them.", strings.TrimSpace(name))}, nil
}
