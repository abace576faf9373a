// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

const manifest = "cmd/kubectl-setpoint/krew.yaml"

var (
	manifestVersion = regexp.MustCompile(`(?m)^  version: (\S+)$`)
	archive         = regexp.MustCompile(`(?m)^\s+uri: (\S+)\n\s+sha256: (\S+)$`)
	sum             = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// checkManifest requires that the manifest for krew names the version, and has the sum of each
// archive.
func (r release) checkManifest(context.Context, string) ([]string, error) {
	text, err := r.read(manifest)
	if err != nil {
		return nil, nil //nolint:nilerr // a repository without a plugin has none
	}
	remedy := fmt.Sprintf("run 'make plugin VERSION=%s' and commit it.", r.version)
	if m := manifestVersion.FindStringSubmatch(text); m == nil || m[1] != r.version {
		return []string{fmt.Sprintf("%s is for another version than %s: %s", manifest, r.version, remedy)}, nil
	}
	archives := archive.FindAllStringSubmatch(text, -1)
	if len(archives) == 0 {
		return []string{fmt.Sprintf("%s has no archive: %s", manifest, remedy)}, nil
	}
	for _, m := range archives {
		if !strings.Contains(m[1], "/"+r.version+"/") {
			return []string{fmt.Sprintf("%s has the archive %s, of another version: %s", manifest, m[1], remedy)}, nil
		}
		if !sum.MatchString(m[2]) {
			return []string{fmt.Sprintf("%s has no sum for %s: %s", manifest, m[1], remedy)}, nil
		}
	}
	return nil, nil
}
