// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// addCommand returns a command that changes the project in this directory, and prints the files
// that it wrote.
func addCommand(use, short string, arguments []string, change func(p *project, to files, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: want(arguments...),
		RunE: func(c *cobra.Command, args []string) error {
			changed, err := add(c.Context(), ".", func(p *project, to files) error { return change(p, to, args) })
			if err != nil {
				return err
			}
			for _, name := range changed.names() {
				if _, err := fmt.Fprintln(c.OutOrStdout(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// add changes the project in a directory, and returns the files that it wrote. If it fails, it has
// written nothing.
func add(ctx context.Context, dir string, change func(p *project, to files) error) (files, error) {
	p, err := open(dir)
	if err != nil {
		return nil, err
	}
	present, err := p.read()
	if err != nil {
		return nil, err
	}
	wanted := maps.Clone(present)
	if err := change(p, wanted); err != nil {
		return nil, err
	}
	if err := p.committed(ctx); err != nil {
		return nil, err
	}
	changed, err := p.try(ctx, present, wanted)
	if err != nil {
		return nil, err
	}
	return changed, changed.write(dir)
}

// crd is what the commands read of a CRD.
type crd struct {
	Spec struct {
		Group    string
		Scope    string
		Names    struct{ Kind, Plural string }
		Versions []struct {
			Name         string
			Subresources struct{ Status *struct{} }
		}
	}
}

// crds returns the CRDs of the project.
func (p *project) crds(in files) (all []crd) {
	for _, name := range in.names() {
		var c crd
		if strings.HasPrefix(name, "config/crd/") && yaml.Unmarshal([]byte(in[name]), &c) == nil && c.Spec.Names.Kind != "" {
			all = append(all, c)
		}
	}
	return all
}

// kinds returns the kinds of the project, sorted.
func (p *project) kinds(in files) (all []string) {
	for _, c := range p.crds(in) {
		all = append(all, c.Spec.Names.Kind)
	}
	slices.Sort(all)
	return all
}

// kind returns the names of a kind of the project.
func (p *project) kind(in files, kind string) (names, error) {
	for _, c := range p.crds(in) {
		switch s := c.Spec; {
		case s.Names.Kind == kind:
			n := p.names
			n.kind, n.plural, n.group, n.clusterScoped = kind, s.Names.Plural, s.Group, s.Scope == "Cluster"
			return n, nil
		case strings.EqualFold(s.Names.Kind, kind):
			return names{}, fmt.Errorf("config/crd has no kind %q; did you mean %s?", kind, s.Names.Kind)
		}
	}
	if len(p.kinds(in)) == 0 {
		return names{}, errors.New("config/crd has no kinds; run 'make generate' first, which writes the CRDs")
	}
	return names{}, fmt.Errorf("config/crd has no kind %q, only %s; add it with 'setpoint add kind', or give one that is there", kind, strings.Join(p.kinds(in), ", "))
}
