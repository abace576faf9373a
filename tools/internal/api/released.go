// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Released returns the baseline of the last release and its tag. Before the first release, and in a
// clone without tags, it returns the baseline of the last commit and HEAD.
func Released(ctx context.Context, root string) (Baseline, string, error) {
	ref, err := git(ctx, root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*")
	if err != nil {
		ref = "HEAD"
	}
	ref = strings.TrimSpace(ref)
	names, err := git(ctx, root, "ls-tree", "-r", "--name-only", ref, "api")
	if err != nil {
		return nil, "", err
	}
	found := Baseline{}
	for _, name := range strings.Fields(names) {
		text, err := git(ctx, root, "show", ref+":"+name)
		if err != nil {
			return nil, "", err
		}
		found.Add(strings.TrimPrefix(name, "api/"), text)
	}
	return found, ref, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
