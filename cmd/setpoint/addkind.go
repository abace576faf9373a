// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"
)

func addKindCommand() *cobra.Command {
	var n names
	c := addCommand("kind KIND", "add a kind, with its controller and tests", []string{"the kind, such as Shop"},
		func(p *project, to files, args []string) error {
			n.kind = args[0]
			n.name, n.module, n.group, n.version = p.name, p.module, p.group, p.version
			if err := n.validateKind(); err != nil {
				return err
			}
			if err := p.addFiles(to, n); err != nil {
				return err
			}
			return p.addLines(to, n)
		})
	c.PostRunE = func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprintf(c.OutOrStdout(), "made the kind %s\n", n.described())
		return err
	}
	kindFlags(c, &n)
	return c
}

// addFiles adds the files of a kind.
func (p *project) addFiles(to files, n names) error {
	all, err := template(n)
	if err != nil {
		return err
	}
	kind := strings.ToLower(n.kind)
	for _, name := range []string{path.Join(p.api, kind+"_types.go"), kind + "_controller.go", kind + "_controller_test.go", n.sample()} {
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
	return to.apply(p.kindLines(n)...)
}

// kindLines are the changes of the lists that have a line for each kind.
func (p *project) kindLines(n names) []change {
	return []change{
		kindLine(p.api+"/doc.go", n.kind),
		below("operator.go", `\t\tadd\w+\(mgr\),`, "addShop(mgr),", fmt.Sprintf("\t\tadd%s(mgr),\n", n.kind)),
		below("config/kustomization.yaml", `- crd/\S+\.yaml`, "- crd/shop.example.org_shops.yaml", fmt.Sprintf("- crd/%s_%s.yaml\n", n.group, n.plural)),
	}
}

// kindLine adds a kind to the package of an API version.
func kindLine(doc, kind string) change {
	return below(doc, `\t\t&\w+\{\}, &\w+List\{\},`, "&Shop{}, &ShopList{},", fmt.Sprintf("\t\t&%s{}, &%[1]sList{},\n", kind))
}
