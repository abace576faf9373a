// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

// child is a kind of children.
type child struct {
	group, version, kind, plural string

	owner names
}

// withPart are the built-in kinds for which the folder parts has a file.
func withPart() []child {
	return []child{
		{group: "", version: "v1", kind: "ConfigMap"}, {group: "", version: "v1", kind: "Secret"},
		{group: "", version: "v1", kind: "Service"}, {group: "", version: "v1", kind: "ServiceAccount"},
		{group: "", version: "v1", kind: "PersistentVolumeClaim"},
		{group: "apps", version: "v1", kind: "DaemonSet"}, {group: "apps", version: "v1", kind: "Deployment"},
		{group: "apps", version: "v1", kind: "StatefulSet"},
		{group: "batch", version: "v1", kind: "CronJob"}, {group: "batch", version: "v1", kind: "Job"},
		{group: "networking.k8s.io", version: "v1", kind: "Ingress"}, {group: "networking.k8s.io", version: "v1", kind: "NetworkPolicy"},
		{group: "rbac.authorization.k8s.io", version: "v1", kind: "Role"}, // with its RoleBinding
	}
}

func addChildCommand() *cobra.Command {
	var owner, plural string
	c := addCommand("child KIND", "keep an object of another kind for each object of a kind", []string{"the kind, such as Deployment or gateway.networking.k8s.io/v1/Gateway"},
		func(p *project, to files, args []string) error { return addChild(p, to, args[0], owner, plural) })
	c.Flags().StringVar(&owner, "owner", "", "the `kind` that owns it (default: the only one of the project)")
	c.Flags().StringVar(&plural, "plural", "", "`plural` of a kind that is not built in (default: by the usual rules)")
	return c
}

func addChild(p *project, to files, kind, owner, plural string) error {
	c, err := p.parseChild(to, kind)
	if err != nil {
		return err
	}
	if c.owner, err = p.owner(to, owner); err != nil {
		return err
	}
	file := strings.ToLower(c.owner.kind + "_" + c.kind)
	if to[file+".go"] != "" {
		return fmt.Errorf("the file %s.go exists, so the kind %s has a %s already; choose another one", file, c.owner.kind, c.kind)
	}
	if c.builtin() {
		return c.addBuiltin(to)
	}
	c.plural = plural
	return c.addOther(p, to)
}

// owner returns the kind of this name, or the only one.
func (p *project) owner(in files, kind string) (names, error) {
	all := p.kinds(in)
	if kind == "" && len(all) == 1 {
		kind = all[0]
	}
	if kind == "" && len(all) > 1 {
		return names{}, fmt.Errorf("the project has the kinds %s; name one with --owner", strings.Join(all, ", "))
	}
	return p.kind(in, kind)
}

// parseChild parses Deployment, apps/v1/Deployment or v1/Service.
func (p *project) parseChild(in files, text string) (*child, error) {
	var known []string
	for _, c := range withPart() {
		full := strings.TrimPrefix(c.group+"/", "/") + c.version + "/" + c.kind
		if text == c.kind || text == full {
			return &c, nil
		}
		if strings.EqualFold(text, c.kind) || strings.EqualFold(text, full) {
			return nil, fmt.Errorf("there is no kind %q; did you mean %s?", text, c.kind)
		}
		known = append(known, c.kind)
	}
	if err := p.checkForeign(in, text); err != nil {
		return nil, err
	}
	part := strings.Split(text, "/")
	if len(part) != 3 || !validKind.MatchString(part[2]) || !validVersion.MatchString(part[1]) || validation.IsDNS1123Subdomain(part[0]) != nil {
		return nil, fmt.Errorf("the kind %q: want one of %s, or group/version/Kind such as gateway.networking.k8s.io/v1/Gateway", text, strings.Join(known, ", "))
	}
	if builtinGroup.MatchString(part[0]) {
		return nil, fmt.Errorf("the kind %s is built in, but of these only %s can be added; add one of them, and replace it by yours", text, strings.Join(known, ", "))
	}
	return &child{group: part[0], version: part[1], kind: part[2]}, nil
}

// checkForeign refuses a kind of the project. Only its author knows a valid spec.
func (p *project) checkForeign(in files, text string) error {
	for _, c := range p.crds(in) {
		s := c.Spec
		group, kind := path.Dir(path.Dir(text)), path.Base(text)
		if !strings.EqualFold(kind, s.Names.Kind) || kind != text && group != s.Group {
			continue
		}
		return fmt.Errorf(`the kind %[1]s is of this project, and only you know a valid spec; add this by hand to the owner's controller:
a marker above the reconciler:
  // +kubebuilder:rbac:groups=%[2]s,resources=%[3]s,verbs=get;list;watch;create;patch;delete
an argument of children.New:
  children.Of(cache.For[*%[4]s.%[1]s](mgr.Cache()))
an argument of r.children.Reconcile, whose name is not the owner's:
  children.Typed(&%[4]s.%[1]s{ObjectMeta: metav1.ObjectMeta{Name: obj.Name + "-%[5]s", Namespace: obj.Namespace}, Spec: %[4]s.%[1]sSpec{…}})`,
			s.Names.Kind, s.Group, s.Names.Plural, p.version, strings.ToLower(s.Names.Kind))
	}
	return nil
}

// builtinGroup matches the API groups that an API server serves without CRDs.
var builtinGroup = regexp.MustCompile(`^([^.]*|(admissionregistration|apiextensions|certificates|coordination|discovery|events|flowcontrol\.apiserver|networking|node|rbac\.authorization|resource|scheduling|storage)\.k8s\.io)$`)

func (c *child) builtin() bool {
	return slices.ContainsFunc(withPart(), func(k child) bool { return k.group == c.group && k.kind == c.kind })
}

// addBuiltin adds a child that has a Go type.
func (c *child) addBuiltin(to files) error {
	lower := strings.ToLower(c.kind)
	part, replace := "greeting_"+lower+".go", []string(nil)
	if c.kind == "DaemonSet" { // it has the fields of a Deployment
		part, replace = "greeting_deployment.go", []string{"Deployment", c.kind, "deployment", lower}
	}
	if err := c.addCopy(to, part, replace...); err != nil {
		return err
	}
	if err := c.declare(to); err != nil || c.kind != "Role" {
		return err
	}
	binding := *c
	binding.kind = "RoleBinding" // its function is in the file of the Role
	return binding.declare(to)
}

// declare adds the test of a built-in child, and the child to the controller.
func (c *child) declare(to files) error {
	pkg, _, _ := strings.Cut(c.group, ".")
	pkg = cmp.Or(pkg, "core")
	alias, imported := pkg+c.version, "k8s.io/api/"+pkg+"/"+c.version
	var changed []string
	switch c.kind {
	case "ConfigMap":
		changed = []string{`Name: "greeting-sample", Namespace`, `Name: "greeting-sample-settings", Namespace`}
	case "PersistentVolumeClaim": // its finalizer stays, because no controller removes it
		const remove, release = "\t\tif err := all.Delete(", "\t\tif _, err := all.Patch(ctx, child, types.MergePatchType, []byte(`{\"metadata\":{\"finalizers\":null}}`)); err != nil {\n\t\t\tt.Fatal(err)\n\t\t}\n"
		changed = []string{remove, release + remove}
	}
	if err := c.addTest(to, append(changed, "appsv1.Deployment", alias+"."+c.kind, `appsv1 "k8s.io/api/apps/v1"`, alias+` "`+imported+`"`)...); err != nil {
		return err
	}
	controller := strings.ToLower(c.owner.kind) + "_controller.go"
	handle := fmt.Sprintf("cache.For[*%s.%s](mgr.Cache())", alias, c.kind)
	if strings.Contains(to[controller], handle) { // it has the kind already
		return to.addArguments(controller, "", "new"+c.owner.kind+c.kind)
	}
	if !strings.Contains(to[controller], `"`+imported+`"`) {
		if err := to.apply(importLine(controller, "k8s.io/", imported)); err != nil {
			return err
		}
		to[controller] = strings.Replace(to[controller], "\t\""+imported+`"`, "\t"+alias+` "`+imported+`"`, 1)
	}
	return to.addArguments(controller, "children.Of("+handle+")", "new"+c.owner.kind+c.kind)
}

// addOther adds a child of a kind with a CRD, and a stand-in of the CRD for the tests.
func (c *child) addOther(p *project, to files) error {
	if c.plural == "" {
		c.plural = pluralOf(strings.ToLower(c.kind))
	}
	if validation.IsDNS1035Label(c.plural) != nil {
		return fmt.Errorf("the plural %q: want lower-case letters and digits, such as shops", c.plural)
	}
	text, err := readPart("greeting_widget.go")
	if err != nil {
		return err
	}
	mine := c.replacer()
	if err := to.add(mine.Replace("greeting_widget.go"), mine.Replace(text), &c.owner); err != nil {
		return err
	}
	err = c.addTest(to, `client.For[*appsv1.Deployment](w.admin)`, "client.ForKind[*unstructured.Unstructured](w.admin, greeting"+c.kind+"Kind())",
		`appsv1 "k8s.io/api/apps/v1"`, `"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"`)
	if err != nil {
		return err
	}
	crd, err := readPart("testdata/crds/widgets.example.com_widgets.yaml")
	if err != nil {
		return err
	}
	file := "testdata/crds/" + c.group + "_" + c.plural + ".yaml"
	if to[file] == "" {
		to[file] = mine.Replace(crd)
	}
	const tests, list = "operator_test.go", "\t\t\"testdata/crds\",\n"
	if !strings.Contains(to[tests], list) {
		if err := to.apply(below(tests, exactly("\t\t\"config/crd\","), `"config/crd",`, list)); err != nil {
			return err
		}
	}
	controller := strings.ToLower(c.owner.kind) + "_controller.go"
	kind := strings.ToLower(c.owner.kind) + c.kind
	return to.addArguments(controller, kind+"s(mgr)", "new"+c.owner.kind+c.kind)
}

// replacer replaces the names of the stand-in kind.
func (c *child) replacer() *strings.Replacer {
	return strings.NewReplacer(
		"widgets.example.com_widgets", c.group+"_"+c.plural,
		"widgets.example.com", c.group,
		"v1gamma1", c.version,
		"widgets", c.plural,
		"Widget", c.kind,
		"widget", strings.ToLower(c.kind),
	)
}

// addTest adds the test of the child, with replacements.
func (c *child) addTest(to files, replace ...string) error {
	return c.addCopy(to, "greeting_deployment_test.go", append(replace, "TestGreetingDeployment", "TestGreeting"+c.kind)...)
}

// addCopy adds a part of the kind Deployment under the name of the kind, with replacements.
func (c *child) addCopy(to files, part string, replace ...string) error {
	text, err := readPart(part)
	if err != nil {
		return err
	}
	name := strings.Replace(part, "deployment", strings.ToLower(c.kind), 1)
	return to.add(name, strings.NewReplacer(replace...).Replace(text), &c.owner)
}
