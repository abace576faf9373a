// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/setpoint-dev/setpoint/tools/internal/plugin"
)

var sum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checkManifest requires that the manifest for krew names the version, and has the sum of each
// archive. It builds the first one again, which shows that the sums are of these sources.
func (r release) checkManifest(ctx context.Context, _ string) ([]string, error) {
	text, err := r.read(plugin.ManifestFile)
	if err != nil {
		return nil, nil //nolint:nilerr // a repository without a plugin has none
	}
	m := plugin.Manifest(text)
	problem := func(format string, args ...any) ([]string, error) {
		return []string{fmt.Sprintf("%s %s: run 'make plugin VERSION=%s' and commit it.",
			plugin.ManifestFile, fmt.Sprintf(format, args...), r.version)}, nil
	}
	if m.Version() != r.version {
		return problem("is for another version than %s", r.version)
	}
	platforms := m.Platforms()
	if len(platforms) == 0 {
		return problem("has no archive")
	}
	for _, p := range platforms {
		if !strings.Contains(p.URL, "/"+r.version+"/") {
			return problem("has the archive %s, of another version", p.URL)
		}
		if !sum.MatchString(p.Sum) {
			return problem("has no sum for %s", p.Archive())
		}
	}
	built, err := r.build(ctx, platforms[0])
	if err != nil {
		return nil, err
	}
	if built != platforms[0].Sum {
		return problem("has a sum for %s of other sources, or of another version of Go", platforms[0].Archive())
	}
	return nil, nil
}

// buildArchive returns the sum of an archive.
func (r release) buildArchive(ctx context.Context, p plugin.Platform) (string, error) {
	out, err := os.MkdirTemp("", "setpoint-release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(out)
	return plugin.Build{Platform: p, Version: r.version, Root: r.root, Out: out}.Run(ctx)
}
