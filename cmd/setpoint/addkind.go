// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/spf13/cobra"
)

func addKindCommand() *cobra.Command {
	var n names
	c := &cobra.Command{
		Use: "kind KIND", Short: "add a kind, with its controller and tests", Args: oneArgument("the kind, such as Shop"),
		RunE: func(c *cobra.Command, args []string) error {
			n.kind = args[0]
			changed, err := addKind(c.Context(), ".", n)
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
	kindFlags(c, &n)
	return c
}

// addKind adds a kind to the project in a directory, and returns the files that it wrote. If it
// fails, it has written nothing.
func addKind(ctx context.Context, dir string, n names) (files, error) {
	p, err := open(dir)
	if err != nil {
		return nil, err
	}
	n.name, n.module, n.group, n.version = p.name, p.module, p.group, p.version
	if err := n.validateKind(); err != nil {
		return nil, err
	}
	if err := p.committed(ctx); err != nil {
		return nil, err
	}
	present, err := p.read()
	if err != nil {
		return nil, err
	}
	wanted := maps.Clone(present)
	if err := p.addFiles(wanted, n); err != nil {
		return nil, err
	}
	if err := p.addLines(wanted, n); err != nil {
		return nil, err
	}
	changed, err := p.try(ctx, present, wanted)
	if err != nil {
		return nil, err
	}
	return changed, changed.write(dir)
}

// addFiles adds the files of a kind.
func (p *project) addFiles(to files, n names) error {
	all, err := template(n)
	if err != nil {
		return err
	}
	kind := strings.ToLower(n.kind)
	for _, name := range []string{path.Join(p.api, kind+"_types.go"), kind + "_controller.go", kind + "_controller_test.go", "config/samples/" + kind + ".yaml"} {
		if _, there := to[name]; there {
			return fmt.Errorf("the file %s exists, so the kind %s is there already; choose another one", name, n.kind)
		}
		to[name] = all[name]
	}
	if crd := fmt.Sprintf("config/crd/%s_%s.yaml", n.group, n.plural); to[crd] != "" {
		return fmt.Errorf("the file %s exists, so another kind has the plural %s; set one with --plural", crd, n.plural)
	}
	return nil
}

// addLines adds the kind to the lists that have a line for each.
func (p *project) addLines(to files, n names) error {
	kinds, controllers, crds := p.anchors()
	for _, add := range []struct {
		anchor

		text string
	}{
		{kinds, fmt.Sprintf("\t\t&%s{}, &%[1]sList{},", n.kind)},
		{controllers, fmt.Sprintf("\t\tadd%s(mgr),", n.kind)},
		{crds, fmt.Sprintf("- crd/%s_%s.yaml", n.group, n.plural)},
	} {
		text, err := add.insert(to[add.file], add.text)
		if err != nil {
			return err
		}
		to[add.file] = text
	}
	return nil
}
