// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// commit commits all files of a project.
func commit(t *testing.T, dir string) {
	t.Helper()
	must(t, dir, "git", "init", "-q", ".")
	must(t, dir, "git", "add", "-A")
	must(t, dir, "git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "a")
}

// refuse expects an error, and that no file changes.
func refuse(t *testing.T, dir, want string, args ...string) {
	t.Helper()
	before := filesOf(t, dir)
	_, err := setpoint(t, dir, args...)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("setpoint %s returns %v, want %q", strings.Join(args, " "), err, want)
	}
	if !maps.Equal(before, filesOf(t, dir)) {
		t.Errorf("setpoint %s changed files", strings.Join(args, " "))
	}
}

// edit replaces text in a file of a project, and commits.
func edit(t *testing.T, dir, file, before, after string) {
	t.Helper()
	name := filepath.Join(dir, filepath.FromSlash(file))
	text, err := os.ReadFile(name)
	testkit.NoError(t, err)
	if !strings.Contains(string(text), before) {
		t.Fatalf("%s has no %q", file, before)
	}
	testkit.NoError(t, os.WriteFile(name, []byte(strings.Replace(string(text), before, after, 1)), 0o644))
	commit(t, dir)
}

// addsAll does what several add commands do, and generates and compiles once.
func addsAll(t *testing.T, dir, kind string, children ...string) {
	t.Helper()
	_, err := add(t.Context(), dir, func(p *project, to files) error {
		changes := []func() error{
			func() error { return addVersion(p, to, kind, "v1") },
			func() error { return addWebhook(p, to, kind) },
			func() error { return addFinalizer(p, to, kind) },
		}
		for _, child := range children {
			changes = append(changes, func() error { return addChild(p, to, child, kind, "") })
		}
		for _, change := range changes {
			if err := change(); err != nil {
				return err
			}
		}
		return nil
	})
	testkit.NoError(t, err)
}

// TestAdd_AllParts: a project with all parts compiles, and kustomize builds its manifests. With
// SETPOINT_FULL=1, the project has two kinds with all parts, and its tests pass.
func TestAdd_AllParts(t *testing.T) {
	full := os.Getenv("SETPOINT_FULL") != ""
	dir := made(t)
	addsAll(t, dir, "Greeting", "Deployment", "ConfigMap", "gateway.networking.k8s.io/v1/Gateway")
	all := filesOf(t, dir)
	for name, text := range all {
		for _, old := range []string{"widget", "v1beta1", "v1gamma1"} {
			testkit.NotContains(t, strings.ToLower(name+text), old, fmt.Sprintf("%s still has %q", name, old))
		}
	}
	for file, want := range map[string]string{
		"webhooks.go":                     "addGreetingV1(hooks)\n\taddGreetingWebhooks(hooks)\n",
		"greeting_controller.go":          "children.Of(configMaps), children.Of(cache.For[*appsv1.Deployment](mgr.Cache())), greetingGateways(mgr))",
		"config/webhook/conversions.yaml": "name: greetings.demo.example.com\n",
		"config/webhook/manifests.yaml":   "name: validate.greetings.demo.example.com\n",
		"config/rbac/role.yaml":           "gateways\n",
		"api/v1alpha1/greeting_types.go":  "// +kubebuilder:storageversion\n",
		"config/kustomization.yaml":       "\npatches:\n- path: webhook/conversions.yaml\n",
	} {
		testkit.Contains(t, all[file], want, fmt.Sprintf("%s has no %q", file, want))
	}
	if found, err := doctor(t.Context(), dir, ""); err != nil || len(found) > 0 {
		t.Errorf("doctor finds %q, %v", found, err)
	}
	for name, text := range all {
		if strings.HasSuffix(name, "_test.go") {
			checkLoggers(t, name, text)
		}
	}
	if !full {
		return
	}
	testkit.NoError(t, testkit.Err(setpoint(t, dir, "add", "kind", "Policy", "--cluster-scoped")))
	addsAll(t, dir, "Policy", "Service", "StatefulSet", "Secret", "gateway.networking.k8s.io/v1/Gateway")
	must(t, dir, "make", "test", "generated")
}

// checkLoggers requires that each manager of a test has a logger. The default one buries failures
// in lines of other tests.
func checkLoggers(t *testing.T, name, text string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	testkit.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		from, to := literal.Pos()-1, literal.End()-1 // positions count from 1
		if code := text[from:to]; strings.HasPrefix(code, "manager.Options{") && !strings.Contains(code, "Logger:") {
			t.Errorf("%s makes a manager without a Logger: %s", name, code)
		}
		return true
	})
}

// TestAdd_FailuresAreReadable: with SETPOINT_FULL=1, a test that fails prints its failure, and no
// lines of the log that are not about it.
func TestAdd_FailuresAreReadable(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("it runs an API server; set SETPOINT_FULL=1")
	}
	dir := made(t)
	edit(t, dir, "greeting_controller_test.go", `w.reconciledGreeting(t, key, "hello")`, `w.reconciledGreeting(t, key, "goodbye")`)
	out, err := run(t.Context(), dir, "go", "test", "-run", "^TestGreeting$", ".")
	if err == nil || !strings.Contains(out, `the ConfigMap has "hello"`) || strings.Contains(out, "INFO") {
		t.Errorf("it returns %v and prints\n%s", err, out)
	}
}

// TestAddChild_EachKind: a project with a child of each built-in kind compiles, and its comments
// still are true. With SETPOINT_FULL=1, the tests of the children pass.
func TestAddChild_EachKind(t *testing.T) {
	dir := made(t)
	_, err := add(t.Context(), dir, func(p *project, to files) error {
		for _, c := range withPart() {
			if err := addChild(p, to, c.kind, "", ""); err != nil {
				return err
			}
		}
		return nil
	})
	testkit.NoError(t, err)
	text := filesOf(t, dir)["greeting_controller.go"]
	for line := range strings.Lines(text) {
		_, comment, _ := strings.Cut(line, "//")
		testkit.NotContains(t, comment, "ConfigMap", "after the children were added, greeting_controller.go has the comment")
	}
	for _, want := range []string{"newGreetingDaemonSet(obj)", "newGreetingRole(obj), newGreetingRoleBinding(obj)", "children.Of(cache.For[*rbacv1.RoleBinding](mgr.Cache()))"} {
		testkit.Contains(t, text, want, "greeting_controller.go")
	}
	if found, err := doctor(t.Context(), dir, ""); err != nil || len(found) > 0 {
		t.Errorf("doctor finds %q, %v", found, err)
	}
	if os.Getenv("SETPOINT_FULL") != "" {
		must(t, dir, "go", "test", "-run", "^TestGreeting[A-Z]", ".")
	}
}

// TestAdd_AfterTheExampleIsReplaced: a finalizer and a child need neither the example's ConfigMap
// nor its test, and a finalizer needs no children. With SETPOINT_FULL=1, the tests pass.
func TestAdd_AfterTheExampleIsReplaced(t *testing.T) {
	none := strings.NewReplacer(
		"\tdesired := coreac.ConfigMap(obj.Name, obj.Namespace).\n\t\tWithData(map[string]string{\"message\": obj.Spec.Message})\n\tresult, err := r.children.Reconcile(ctx, obj, desired)\n\tif changes := result.Changes(); changes != \"\" {\n\t\tr.events.Eventf(ctx, obj, events.Normal, \"Applied\", \"ApplyChildren\", \"%s\", changes)\n\t}\n\treturn err\n", "\t// It calls another system.\n\treturn ctx.Err()\n",
		"\tconfigMaps := cache.For[*corev1.ConfigMap](mgr.Cache())\n\tvar err error\n\tif r.children, err = children.New(r.objects, r.client, children.Of(configMaps)); err != nil {\n\t\treturn fmt.Errorf(\"declaring the children: %w\", err)\n\t}\n", "",
		"\tchildren *children.Set[*v1alpha1.Greeting]\n", "", "\tr.children.Watch(c)\n", "",
		"\t\"fmt\"\n", "", "\t\"github.com/setpoint-dev/setpoint/children\"\n", "",
		"\tcorev1 \"k8s.io/api/core/v1\"\n", "", "\tcoreac \"k8s.io/client-go/applyconfigurations/core/v1\"\n", "",
	)
	other := strings.NewReplacer("ConfigMap", "Secret", "configMap", "secret", "configmap", "secret", "WithData(", "WithStringData(")
	for name, c := range map[string]struct {
		by       *strings.Replacer
		children []string
	}{
		"another kind": {other, []string{"ConfigMap", "Service", "a.example.org/v1/Bus"}},
		"no children":  {none, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			_, err := add(t.Context(), dir, func(p *project, to files) error {
				const controller = "greeting_controller.go"
				to[controller] = c.by.Replace(to[controller])
				if strings.Contains(to[controller], "ConfigMap") {
					t.Fatalf("%s still has the ConfigMap:\n%s", controller, to[controller])
				}
				delete(to, "greeting_controller_test.go")
				for _, child := range c.children {
					if err := addChild(p, to, child, "", ""); err != nil {
						return err
					}
				}
				return addFinalizer(p, to, "Greeting")
			})
			testkit.NoError(t, err)
			if os.Getenv("SETPOINT_FULL") != "" {
				must(t, dir, "rm", "greeting_controller_test.go")
				must(t, dir, "go", "test", ".")
			}
		})
	}
}

// TestAdd_EachPart: with SETPOINT_FULL=1, the tests of projects with one part pass, and also with
// all parts and a kind that has an odd name.
func TestAdd_EachPart(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("it takes minutes; set SETPOINT_FULL=1")
	}
	for _, args := range []string{"webhook Greeting", "version Greeting v1", "finalizer Greeting", "child Job", "child CronJob"} {
		t.Run(args, func(t *testing.T) {
			dir := made(t)
			testkit.NoError(t, testkit.Err(setpoint(t, dir, append([]string{"add"}, strings.Fields(args)...)...)))
			must(t, dir, "make", "test", "generated")
		})
	}
	for kind, args := range map[string][]string{
		"Policy": {"--cluster-scoped"}, "Status": nil, "Bus": nil, "DNSRecord": nil, "ConfigMap": nil, "Service": {"--cluster-scoped"}, "Test": nil,
	} {
		t.Run(kind, func(t *testing.T) {
			dir := made(t, append(args, "--kind", kind, "--group", "my-group.example.org")...)
			edit(t, dir, "api/v1alpha1/"+strings.ToLower(kind)+"_types.go", "// "+kind+"Status is", nestedType(kind))
			const message = "\tMessage string `json:\"message\"`\n"
			edit(t, dir, "api/v1alpha1/"+strings.ToLower(kind)+"_types.go", message, message+"\t// page is a part.\n\t// +optional\n\tPage "+kind+"Page `json:\"page,omitempty\"`\n")
			addsAll(t, dir, kind, "Deployment", "ServiceAccount", "Service", "a.example.org/v1/Bus")
			must(t, dir, "make", "test", "generated")
		})
	}
}

// nestedType adds a field to a spec whose type is in the package.
func nestedType(kind string) string {
	return "// " + kind + "Page is a part of the spec.\ntype " + kind + "Page struct {\n\t// size is its size.\n\t// +optional\n\tSize int32 `json:\"size,omitempty\"`\n}\n\n// " + kind + "Status is"
}

// TestAddVersion_NestedTypes: Go cannot convert a struct whose fields have types of the package.
func TestAddVersion_NestedTypes(t *testing.T) {
	dir := made(t)
	p, err := open(dir)
	testkit.NoError(t, err)
	const types = "api/v1alpha1/greeting_types.go"
	for _, nested := range []bool{false, true} {
		to := filesOf(t, dir)
		to[types] = strings.Replace(to[types], "// GreetingStatus is", nestedType("Greeting"), 1)
		if nested {
			to[types] = strings.Replace(to[types], "\tMessage string", "\tPages []GreetingPage `json:\"pages\"`\n\tMessage string", 1)
		}
		testkit.NoError(t, addVersion(p, to, "Greeting", "v1"))
		if has := strings.Contains(to["greeting_v1.go"], "\treturn sameFields(from, to)\n"); has != nested || (to["conversions.go"] != "") != nested {
			t.Errorf("with nested types: %t, the conversion is\n%s", nested, to["greeting_v1.go"])
		}
	}
}

// TestAddKind: the project has a second kind and compiles. A failed command changes nothing.
func TestAddKind(t *testing.T) {
	dir := made(t)
	commit(t, dir)
	out, err := setpoint(t, dir, "add", "kind", "Policy", "--cluster-scoped")
	const described = "\nmade the kind Policy of the group demo.example.com, its plural is policies; these are hard to change later\n"
	if err != nil || !strings.Contains(out, "policy_controller.go\n") || !strings.Contains(out, "operator.go\n") || !strings.HasSuffix(out, described) {
		t.Fatalf("it printed %q and returned %v", out, err)
	}
	if os.Getenv("SETPOINT_FULL") != "" {
		must(t, dir, "go", "test", "./...")
	}
	refuse(t, dir, "changes that are not committed", "add", "kind", "Bus")
	commit(t, dir)
	refuse(t, dir, "the kind Policy is there already", "add", "kind", "Policy")
	refuse(t, dir, "another kind has the plural policies", "add", "kind", "Pol", "--plural", "policies")
	refuse(t, dir, "a capital first", "add", "kind", "bus")
	refuse(t, dir, "give one argument", "add", "kind")
	refuse(t, dir, "redeclared", "add", "kind", "PolicySpec") // go vet says so

	edit(t, dir, "operator.go", "addGreeting(mgr),\n\t\taddPolicy(mgr),\n", "addGreeting(mgr), addPolicy(mgr),\n")
	refuse(t, dir, `operator.go has no line such as "addShop(mgr),"`, "add", "kind", "Bus")
	testkit.ErrorContains(t, testkit.Err(setpoint(t, dir, "doctor")), "operator.go has no line", "doctor returns")
	must(t, dir, "git", "checkout", "-q", "HEAD~1", ".")
	commit(t, dir)
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	refuse(t, dir, "nothing was changed", "add", "kind", "Bus")
}

// TestAdd_RefusesBadInput: one sentence each, before anything is generated.
func TestAdd_RefusesBadInput(t *testing.T) {
	dir := made(t)
	commit(t, dir)
	for _, c := range []struct {
		want string
		args []string
	}{
		{`unknown command "knd" for "setpoint add"`, []string{"add", "knd", "Bus"}},
		{"give one argument: the kind", []string{"add", "webhook"}},
		{"give two arguments: the kind", []string{"add", "version", "Greeting"}},
		{"give one argument: the kind", []string{"add", "finalizer", "Greeting", "Bus"}},
		{"give one argument: the kind", []string{"add", "child"}},
		{`config/crd has no kind "Bus", only Greeting`, []string{"add", "webhook", "Bus"}},
		{`has no kind "GREETING"; did you mean Greeting?`, []string{"add", "webhook", "GREETING"}},
		{`has no kind "greeting"; did you mean Greeting?`, []string{"add", "finalizer", "greeting"}},
		{`has no kind "greeting"; did you mean Greeting?`, []string{"add", "version", "greeting", "v1"}},
		{`config/crd has no kind "Bus"`, []string{"add", "finalizer", "Bus"}},
		{`config/crd has no kind "Bus"`, []string{"add", "child", "Service", "--owner", "Bus"}},
		{`the version "1": want one such as v1`, []string{"add", "version", "Greeting", "1"}},
		{"has the version v1alpha1 already", []string{"add", "version", "Greeting", "v1alpha1"}},
		{`the kind "Pod": want one of ConfigMap, `, []string{"add", "child", "Pod"}},
		{`the kind "a/b": want one of`, []string{"add", "child", "a/b"}},
		{"the kind autoscaling/v2/HorizontalPodAutoscaler is built in", []string{"add", "child", "autoscaling/v2/HorizontalPodAutoscaler"}},
		{"the kind Greeting is of this project", []string{"add", "child", "demo.example.com/v1/Greeting"}},
		{"children.Of(cache.For[*v1alpha1.Greeting](mgr.Cache()))", []string{"add", "child", "Greeting"}},
		{`there is no kind "deployment"; did you mean Deployment?`, []string{"add", "child", "deployment"}},
		{`there is no kind "apps/v1/daemonset"; did you mean DaemonSet?`, []string{"add", "child", "apps/v1/daemonset"}},
		{`has no kind "greeting"; did you mean Greeting?`, []string{"add", "child", "Service", "--owner", "greeting"}},
		{`the plural "A": want lower-case`, []string{"add", "child", "a.example.org/v1/A", "--plural", "A"}},
	} {
		refuse(t, dir, c.want, c.args...)
		for outside, want := range map[string]string{
			t.TempDir():                  "at the top of a project",
			filepath.Join(dir, "config"): "below the top of the project shop-operator; run 'cd ..' first",
		} {
			if len(c.args) > 2 {
				if _, err := setpoint(t, outside, c.args...); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), c.want) {
					t.Errorf("outside of a project, setpoint %s returns %v", strings.Join(c.args, " "), err)
				}
			}
		}
	}
	if out, err := setpoint(t, dir, "add"); err != nil || !strings.Contains(out, "Available Commands:") {
		t.Errorf("setpoint add prints %q and returns %v", out, err)
	}
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	all := [][]string{{"add", "webhook", "Greeting"}, {"add", "version", "Greeting", "v1"}, {"add", "finalizer", "Greeting"}, {"add", "child", "Service"}}
	for _, args := range all {
		refuse(t, dir, "in a copy of the project, so nothing was changed", args...)
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "new.txt"), nil, 0o644))
	for _, args := range all {
		refuse(t, dir, "changes that are not committed", args...)
	}
}

// TestAdd_RefusesWithoutSample: the tests of the parts read the sample of the kind.
func TestAdd_RefusesWithoutSample(t *testing.T) {
	dir := made(t)
	testkit.NoError(t, os.Remove(filepath.Join(dir, "config", "samples", "greeting.yaml")))
	commit(t, dir)
	for _, c := range []struct{ args, test string }{
		{"webhook Greeting", "greeting_webhook_test.go"},
		{"version Greeting v1", "greeting_v1_test.go"},
		{"finalizer Greeting", "greeting_finalizer_test.go"},
		{"child Service", "greeting_service_test.go"},
	} {
		refuse(t, dir, "there is no file config/samples/greeting.yaml, which the new test "+c.test+" reads", append([]string{"add"}, strings.Fields(c.args)...)...)
	}
}

// TestAdd_RefusesWithoutCRDs: the kinds of a project are in config/crd, which go generate writes.
func TestAdd_RefusesWithoutCRDs(t *testing.T) {
	dir := made(t)
	testkit.NoError(t, os.RemoveAll(filepath.Join(dir, "config", "crd")))
	commit(t, dir)
	for _, args := range []string{"webhook Greeting", "version Greeting v1", "finalizer Greeting", "child Service", "child Service --owner Greeting"} {
		refuse(t, dir, "config/crd has no kinds; run 'make generate' first", append([]string{"add"}, strings.Fields(args)...)...)
	}
}

// TestAdd_RefusesEditedLines: the error names the file, and what to add by hand.
func TestAdd_RefusesEditedLines(t *testing.T) {
	dir := made(t)
	commit(t, dir)
	for _, c := range []struct{ file, before, after, want, args string }{
		{"main.go", "\tflag.Parse()\n", "\tflag.CommandLine.Parse(os.Args[1:])\n", `main.go has no line such as "flag.Parse()", which shows`, "webhook Greeting"},
		{"main.go", "type settings struct {", "type settings struct { // flags", "webhooks, manifests string", "version Greeting v1"},
		{"config/manager/deployment.yaml", "- -metrics=:8443", "- -metrics=:9090", "- -webhooks=:9443", "webhook Greeting"},
		{"api/v1alpha1/greeting_types.go", "// +kubebuilder:object:root=true\n", "// +kubebuilder:object:root:=true\n", "// +kubebuilder:storageversion", "version Greeting v1"},
		{"greeting_controller.go", "if obj.DeletionTimestamp != nil {", "if !obj.DeletionTimestamp.IsZero() {", "return r.finalize(ctx, obj)", "finalizer Greeting"},
		{"greeting_controller.go", "type GreetingReconciler struct {", "type GreetingReconciler struct { // it", "cleanup *finalizer.Chain[*v1alpha1.Greeting]", "finalizer Greeting"},
		{"greeting_controller.go", "r.children.Reconcile(ctx, obj, desired)", "r.children.Reconcile(ctx, obj, all...)", "greeting_controller.go has no single call r.children.Reconcile(…)", "child Service"},
		{"greeting_controller.go", "children.New(r.objects", "newChildren(r.objects", "greeting_controller.go has no single call children.New(…)", "child Service"},
	} {
		edit(t, dir, c.file, c.before, c.after)
		refuse(t, dir, c.want, append([]string{"add"}, strings.Fields(c.args)...)...)
		edit(t, dir, c.file, c.after, c.before)
	}
}

// TestAdd_Twice: each part can be added once.
func TestAdd_Twice(t *testing.T) {
	dir := made(t)
	for file, args := range map[string]string{
		"greeting_webhook.go":           "webhook Greeting",
		"api/v1beta1/greeting_types.go": "version Greeting v1beta1",
		"greeting_finalizer.go":         "finalizer Greeting",
		"greeting_deployment.go":        "child Deployment",
		"greeting_gateway.go":           "child a.example.org/v1/Gateway",
	} {
		name := filepath.Join(dir, filepath.FromSlash(file))
		testkit.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		testkit.NoError(t, os.WriteFile(name, []byte("package main\n"), 0o644))
		commit(t, dir)
		refuse(t, dir, "the file "+file+" exists, so", append([]string{"add"}, strings.Fields(args)...)...)
	}
}
