// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/setpoint-dev/setpoint/tools/internal/plugin"
)

// A release is a version of all published modules, from one commit.
type release struct {
	repository
	published []string // directories; the first is the root
	libraries []string // the part of them with an API
	version   string
	// build returns the sum of an archive of the plugin.
	build func(context.Context, plugin.Platform) (string, error)
}

// tag creates the tags if all checks pass.
func (r release) tag(ctx context.Context, out io.Writer) error {
	last, err := r.lastVersion(ctx)
	if err != nil {
		return err
	}
	if err := r.validate(last); err != nil {
		return err
	}
	commit, err := r.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	problems, err := r.problems(ctx, last)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("release: %s is not ready, and no tag was created:\n- %s", r.version, strings.Join(problems, "\n- "))
	}
	tags := r.tags()
	if err := r.createTags(ctx, commit, tags); err != nil {
		return err
	}
	fmt.Fprintf(out, "Created %d tags at %.12s. Nothing is pushed yet:\n\n\tgit push origin %s\n", len(tags), commit, strings.Join(tags, " "))
	return nil
}

// tags returns one tag for each published module.
func (r release) tags() []string {
	var all []string
	for _, dir := range r.published {
		all = append(all, path.Join(dir, r.version)) // the root is "."
	}
	return all
}

// validate returns an error that names the mistake in the version.
func (r release) validate(last string) error {
	switch v := r.version; {
	case !semver.IsValid(v) || semver.Canonical(v) != v:
		return fmt.Errorf("release: %q is not a version of the form v0.1.0; write three numbers after a v", v)
	case semver.Major(v) != "v0" && semver.Major(v) != "v1":
		return fmt.Errorf("release: %s needs module paths that end in /%s; change them in all go.mod files first", v, semver.Major(v))
	case last == v:
		return fmt.Errorf("release: the tag %s exists; choose a later version", v)
	case last != "" && semver.Compare(v, last) < 0:
		return fmt.Errorf("release: %s is lower than the last release, %s; choose a later version", v, last)
	}
	return nil
}

// problems runs all checks and returns a sentence, with the remedy, for each that fails.
func (r release) problems(ctx context.Context, last string) ([]string, error) {
	var all []string
	var errs []error
	for _, check := range []func(context.Context, string) ([]string, error){
		r.checkTree, r.checkChangelog, r.checkAPI, r.checkRequirements, r.checkPages, r.checkManifest, r.checkLicenses,
	} {
		found, err := check(ctx, last)
		all, errs = append(all, found...), append(errs, err)
	}
	return all, errors.Join(errs...)
}
