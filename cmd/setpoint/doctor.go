// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "name what is missing or old in the project in this directory", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			found, err := doctor(c.Context(), ".", ownVersion())
			if err != nil {
				return err
			}
			if len(found) == 0 {
				_, err = fmt.Fprintln(c.OutOrStdout(), "nothing is missing")
				return err
			}
			return fmt.Errorf("%s", strings.Join(found, "\n"))
		},
	}
}

// doctor returns a sentence for each thing that is missing or old. version is the one of this
// program, or "".
func doctor(ctx context.Context, dir, version string) (found []string, err error) {
	p, err := open(dir)
	if err != nil {
		return nil, err
	}
	present, err := p.read()
	if err != nil {
		return nil, err
	}
	found = slices.Concat(p.missingLines(present), unlisted(present), oldVersions(present, p.api+"/doc.go", version), p.missingRights(present), p.missingStatus(present))
	stale, err := p.try(ctx, present, present)
	if err != nil {
		return append(found, err.Error()), nil
	}
	for _, name := range stale.names() {
		found = append(found, fmt.Sprintf("%s is not as the types and markers say; run 'make generate'", name))
	}
	return found, nil
}

// missingLines names the lines that the add commands need.
func (p *project) missingLines(in files) (found []string) {
	for _, c := range p.kindLines(names{}) {
		if !c.possible(in) {
			found = append(found, fmt.Sprintf("%s has no line such as %q: 'setpoint add kind' needs one", c.file, c.like))
		}
	}
	if in["webhooks.go"] == "" {
		return found
	}
	if c := hooksLine(""); !c.possible(in) {
		found = append(found, fmt.Sprintf("%s has no line such as %q: 'setpoint add webhook' and 'setpoint add version' need one", c.file, c.like))
	}
	if file := "config/manager/deployment.yaml"; !strings.Contains(in[file], "- -webhooks=") {
		found = append(found, file+" has no argument -webhooks=:9443, so the operator does not answer the webhooks; add it")
	}
	return found
}

// unlisted names the manifests that the kustomization does not list, not even in a comment.
func unlisted(in files) (found []string) {
	const list = "config/kustomization.yaml"
	for _, name := range in.names() {
		rel, ok := strings.CutPrefix(name, "config/")
		dir := path.Dir(rel)
		if !ok || path.Ext(name) != ".yaml" || dir == "." || dir == "samples" || in[name] == "" || strings.Contains(in[list], rel) {
			continue
		}
		found = append(found, fmt.Sprintf("%s does not list %s, so 'make deploy' leaves it out; add it", list, rel))
	}
	return found
}
