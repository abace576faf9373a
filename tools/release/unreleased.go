// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/setpoint-dev/setpoint/tools/internal/api"
	"github.com/setpoint-dev/setpoint/tools/internal/changelog"
)

// unreleased prints what has changed since the last release.
func (r release) unreleased(ctx context.Context, out io.Writer) error {
	last, err := r.lastVersion(ctx)
	if err != nil {
		return err
	}
	if last == "" {
		fmt.Fprintln(out, "There is no release yet: the whole of api/ is new.")
	} else if err := r.printChanges(ctx, out); err != nil {
		return err
	}
	text, err := r.read("CHANGELOG.md")
	if err != nil {
		return err
	}
	section, _ := changelog.Find(text, "Unreleased")
	if section.Text == "" {
		section.Text = "The section [Unreleased] of CHANGELOG.md is empty."
	}
	_, err = fmt.Fprintf(out, "\n%s\n", section.Text)
	return err
}

func (r release) printChanges(ctx context.Context, out io.Writer) error {
	before, ref, err := api.Released(ctx, r.root)
	if err != nil {
		return err
	}
	now, err := api.Load(ctx, r.root, r.libraries)
	if err != nil {
		return err
	}
	changes := api.Compare(before, now)
	broken := 0
	for _, c := range changes {
		if c.Incompatible() {
			broken++
		}
	}
	fmt.Fprintf(out, "The API since %s: %d changes, %d of them incompatible.\n\n", ref, len(changes), broken)
	for _, c := range changes {
		fmt.Fprint(out, c)
	}
	return nil
}
