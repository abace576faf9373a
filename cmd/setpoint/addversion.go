// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

func addVersionCommand() *cobra.Command {
	return addCommand("version KIND VERSION", "serve a kind in another version, with conversions", []string{"the kind, such as Shop", "the version, such as v1"},
		func(p *project, to files, args []string) error { return addVersion(p, to, args[0], args[1]) })
}

var validVersion = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// addVersion serves a kind in another version. The stored version stays, because the release that
// runs now knows no other one.
func addVersion(p *project, to files, kind, version string) error {
	if !validVersion.MatchString(version) {
		return fmt.Errorf("the version %q: want one such as v1, v1beta1 or v2alpha1", version)
	}
	n, err := p.kind(to, kind)
	if err != nil {
		return err
	}
	n.newVersion = version
	types, copied := path.Join(p.api, strings.ToLower(kind)+"_types.go"), path.Join("api", version, strings.ToLower(kind)+"_types.go")
	if to[copied] != "" {
		return fmt.Errorf("the file %s exists, so the kind %s has the version %s already; choose another one", copied, kind, version)
	}
	if to[types] == "" {
		return fmt.Errorf("the file %s, with the types to copy, does not exist; put the kind %s there", types, kind)
	}
	to[copied] = copyOfTypes(to[types], p.version, version)
	if err := p.addWebhookServer(to, &n); err != nil {
		return err
	}
	if err := p.addVersionParts(to, &n); err != nil {
		return err
	}
	if err := p.addAPI(to, &n); err != nil {
		return err
	}
	if err := addPatch(to); err != nil {
		return err
	}
	return to.apply(append(p.storedVersion(to, types, kind), pluralLine(to, &n), hooksLine(fmt.Sprintf("\tadd%s%s(hooks)\n", kind, exported(version))))...)
}

// copyOfTypes returns the file of a kind for another version.
func copyOfTypes(text, version, other string) string {
	text = regexp.MustCompile(`(?m)^package `+version+`$`).ReplaceAllString(text, "package "+other)
	return regexp.MustCompile(`(?m)^// \+kubebuilder:storageversion\n`).ReplaceAllString(text, "")
}

func (p *project) addVersionParts(to files, n *names) error {
	const conversion = "greeting_v1beta1.go"
	if err := to.addParts(n, conversion, "greeting_v1beta1_test.go", "conversions_test.go"); err != nil {
		return err
	}
	nested, err := p.hasNestedTypes(to, n.kind)
	if err != nil || !nested {
		return err
	}
	// Go does not convert a struct with fields of other types, even if they look the same.
	file := n.replacer().Replace(conversion)
	to[file] = regexp.MustCompile(`\tto\.Spec = .*\n\tto\.Status = .*\n\treturn nil\n`).ReplaceAllString(to[file], "\treturn sameFields(from, to)\n")
	return to.addParts(n, "conversions.go")
}

// hasNestedTypes reports whether the spec or the status of a kind uses types of the package.
func (p *project) hasNestedTypes(in files, kind string) (bool, error) {
	declared, structs := map[string]bool{}, []ast.Expr{}
	for name, text := range in {
		if path.Dir(name) != p.api || path.Ext(name) != ".go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		for _, decl := range file.Decls {
			all, _ := decl.(*ast.GenDecl)
			if all == nil || all.Tok != token.TYPE {
				continue
			}
			for _, spec := range all.Specs {
				s := spec.(*ast.TypeSpec) //nolint:forcetypeassert // of token.TYPE
				declared[s.Name.Name] = true
				if s.Name.Name == kind+"Spec" || s.Name.Name == kind+"Status" {
					structs = append(structs, s.Type)
				}
			}
		}
	}
	found := false
	for _, s := range structs {
		ast.Inspect(s, func(node ast.Node) bool {
			id, ok := node.(*ast.Ident)
			found = found || ok && declared[id.Name]
			return true
		})
	}
	return found, nil
}

// addAPI adds the kind to the package of the version, and the package to the scheme.
func (p *project) addAPI(to files, n *names) error {
	doc := path.Join("api", n.newVersion, "doc.go")
	if to[doc] != "" {
		return to.apply(kindLine(doc, n.kind))
	}
	if err := to.addParts(n, "api/v1beta1/doc.go"); err != nil {
		return err
	}
	of := path.Join(p.module, "api") + "/"
	return to.apply(
		below("operator.go", `\t"`+regexp.QuoteMeta(of)+`\w+"`, fmt.Sprintf("%q", of+p.version), fmt.Sprintf("\t%q\n", of+n.newVersion)),
		below("operator.go", `\t\t\w+\.AddToScheme\(s\),`, p.version+".AddToScheme(s),", "\t\t"+n.newVersion+".AddToScheme(s),\n"),
	)
}

// storedVersion returns the change that keeps the stored version of a kind, if it has no marker.
func (p *project) storedVersion(in files, types, kind string) []change {
	const root, marker = "// +kubebuilder:object:root=true", "// +kubebuilder:storageversion\n"
	doc := regexp.MustCompile(`(?m)(?:^//.*\n)*^type ` + kind + ` struct `).FindString(in[types])
	if strings.Contains(doc, marker) {
		return nil
	}
	return []change{{
		file: types, like: root + " above type " + kind + " struct",
		line: regexp.MustCompile(`(?m)^` + exactly(root) + `\n((?://.*\n)*type ` + kind + ` struct )`),
		text: root + "\n" + marker + "${1}",
	}}
}

// addPatch makes kustomize patch the conversions into the CRDs.
func addPatch(to files) error {
	const file, list, line = "config/kustomization.yaml", "patches:\n", "- path: webhook/conversions.yaml\n"
	switch text := to[file]; {
	case strings.Contains(text, line):
		return nil
	case strings.Contains(text, "\n"+list):
		return to.apply(below(file, "patches:", "patches:", line))
	default:
		to[file] = strings.TrimRight(text, "\n") + "\n" + list + line
		return nil
	}
}
