// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// setpoint runs the command in a directory, and returns what it prints.
func setpoint(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	t.Chdir(dir)
	var out bytes.Buffer
	c := command(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// must runs a program.
func must(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if out, err := run(t.Context(), dir, name, args...); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// checkout is the tree of this file.
func checkout(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	testkit.NoError(t, err)
	return dir
}

// made returns the directory of a new project, which uses this tree.
func made(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("GOWORK", "off")
	library, dir := checkout(t), t.TempDir()
	args = append([]string{"new", "shop-operator", "--module", "example.org/shop-operator/v2", "--setpoint", library}, args...)
	testkit.NoError(t, testkit.Err(setpoint(t, dir, args...)))
	return filepath.Join(dir, "shop-operator")
}

func filesOf(t *testing.T, dir string) files {
	t.Helper()
	all, err := (&project{dir: dir}).read()
	testkit.NoError(t, err)
	return all
}

// TestTemplate_IsCurrent: the embedded copy is examples/template.
func TestTemplate_IsCurrent(t *testing.T) {
	embedded := files{}
	for _, f := range txtar.Parse(packed).Files {
		embedded[f.Name] = string(f.Data)
	}
	template := os.DirFS("../../examples/template")
	err := fs.WalkDir(template, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := fs.ReadFile(template, name)
		testkit.Equal(t, embedded[name], string(text), fmt.Sprintf("%s differs from the embedded one", name), "run go generate in cmd/setpoint")
		delete(embedded, name)
		return err
	})
	testkit.Equal(t, err, nil)
	testkit.Len(t, embedded.names(), 0)
}

// TestTemplate_HasFewFilesToRead: those that AGENTS.md lists before a first change exist.
func TestTemplate_HasFewFilesToRead(t *testing.T) {
	agents, err := os.ReadFile("../../examples/template/AGENTS.md")
	testkit.NoError(t, err)
	_, first, _ := strings.Cut(string(agents), "## Read first\n")
	first, _, _ = strings.Cut(first, "\n## ")
	named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1)
	if len(named) == 0 || len(named) > 9 { // and AGENTS.md itself
		t.Errorf("AGENTS.md lists %d files to read first, want 1 to 9", len(named))
	}
	for _, name := range named {
		testkit.Equal(t, testkit.Err(os.Stat(filepath.Join("../../examples/template", filepath.FromSlash(name[1])))), nil)
	}
}

// TestNew_LeavesAWholeProject: no file has the template's names, the generators change nothing, and
// it compiles. With SETPOINT_FULL=1, its tests pass against a real API server.
func TestNew_LeavesAWholeProject(t *testing.T) {
	full := os.Getenv("SETPOINT_FULL") != ""
	for i, args := range [][]string{
		{"--kind", "Policy", "--group", "my-group.example.org", "--cluster-scoped"},
		{"--kind", "ConfigMap", "--group", "net.example.org"},
		{"--kind", "Status", "--group", "net.example.org"},
		{"--kind", "Bus", "--group", "net.example.org"},
		{"--kind", "Proxy", "--group", "net.example.org"},
		{"--kind", "DNSRecord", "--group", "net.example.org"},
		{"--kind", "Service", "--group", "a-b.c-d.example.org"},
		{"--kind", "Deployment", "--group", "net.example.org", "--cluster-scoped"},
		{"--kind", "Person", "--plural", "people", "--group", "net.example.org"},
		{"--kind", "Test", "--group", "net.example.org"},
	} {
		if i > 1 && !full {
			break
		}
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			dir := made(t, args...)
			before := filesOf(t, dir)
			for name, text := range before {
				for _, old := range []string{"greeting", "demo.example", "examples/template", "Setpoint Authors", "sample-operator"} {
					testkit.NotContains(t, strings.ToLower(name+text), strings.ToLower(old), fmt.Sprintf("%s still has %q", name, old))
				}
			}
			found, err := doctor(t.Context(), dir, "")
			testkit.Equal(t, err, nil)
			testkit.Len(t, found, 0)
			if full {
				must(t, dir, "go", "test", "./...")
			}
		})
	}
}

// TestDoctor names files that are not as the markers say.
func TestDoctor(t *testing.T) {
	dir := made(t)
	types := filepath.Join(dir, "api", "v1alpha1", "greeting_types.go")
	text, err := os.ReadFile(types)
	testkit.NoError(t, err)
	testkit.NoError(t, os.WriteFile(types, bytes.Replace(text, []byte("MinLength=1"), []byte("MinLength=2"), 1), 0o644))
	const want = "config/crd/demo.example.com_greetings.yaml is not as the types and markers say; run 'make generate'"
	testkit.Equal(t, fmt.Sprint(testkit.Err(setpoint(t, dir, "doctor"))), want, "doctor returns")
	testkit.ErrorContains(t, testkit.Err(setpoint(t, t.TempDir(), "doctor")), "run it at the top of a project", "outside of a project, doctor returns")
}

// TestDoctor_NamesWhatIsNoProject: a project has a module and a line with the operator's name.
func TestDoctor_NamesWhatIsNoProject(t *testing.T) {
	for _, c := range []struct {
		files files
		want  string
	}{
		{nil, "this directory has no go.mod; run it at the top of a project"},
		{files{"operator.go": "package main\n\nconst name = \"shop\"\n"}, "this directory has no go.mod;"},
		{files{"go.mod": "module example.org/shop\n"}, "this directory has no operator.go;"},
		{files{"go.mod": "module example.org/shop\n", "operator.go": "package main\n\nvar name = \"shop\"\n"}, `operator.go has no line 'const name = "…"'`},
	} {
		dir := t.TempDir()
		testkit.NoError(t, c.files.write(dir))
		refuse(t, dir, c.want, "doctor")
		refuse(t, dir, c.want, "add", "kind", "Shop")
	}
}

// TestDoctor_NamesWhatDoesNotCompile: the lines are of one run, with paths in the project.
func TestDoctor_NamesWhatDoesNotCompile(t *testing.T) {
	dir := made(t)
	for _, c := range []struct{ command, file, text, line string }{
		{"doctor", "greeting_controller.go", "var a, b int = \"\", c\n", "\n./greeting_controller.go:107:20: undefined: c"},
		{"add kind Bus", "api/v1alpha1/greeting_types.go", "func (\n", "\napi/v1alpha1/greeting_types.go:49:1: syntax error"},
		{"doctor", "operator_test.go", "var a int = b\n", "\nvet: ./operator_test.go:"},
	} {
		text := filesOf(t, dir)[c.file]
		edit(t, dir, c.file, text, text+c.text)
		_, err := setpoint(t, dir, strings.Fields(c.command)...)
		const begins = "the project does not compile; mend this first:\n# "
		if err == nil || !strings.HasPrefix(err.Error(), begins) || strings.Count(err.Error(), c.line) != 1 || strings.Contains(err.Error(), os.TempDir()) {
			t.Errorf("with %q in %s, setpoint %s returns %v", c.text, c.file, c.command, err)
		}
		edit(t, dir, c.file, text+c.text, text)
	}
}

// TestDoctor_NamesWhatIsOldOrMissing makes one change at a time to a project that lacks nothing.
func TestDoctor_NamesWhatIsOldOrMissing(t *testing.T) {
	dir := made(t)
	p, err := open(dir)
	testkit.NoError(t, err)
	good := filesOf(t, dir)
	good["webhooks.go"], good["config/webhook/service.yaml"] = "\thooks := webhook.New(o)\n", "kind: Service\n"
	good["config/kustomization.yaml"] += "- webhook/service.yaml\n"
	good["config/manager/deployment.yaml"] += "        - -webhooks=:9443\n"
	// The version of a replaced module does not count.
	good["go.mod"] = strings.Replace(good["go.mod"], "\nreplace ", "\n// ", 1)
	find := func(in files, version string) []string {
		return slices.Concat(p.missingLines(in), unlisted(in), oldVersions(in, p.api+"/doc.go", version), p.missingRights(in), p.missingStatus(in))
	}
	testkit.Len(t, find(good, "v0.1.0"), 0, "before a change, it finds")
	for _, c := range []struct{ file, before, after, want string }{
		{"webhooks.go", "webhook.New", "New", "webhooks.go has no line such as"},
		{"config/manager/deployment.yaml", "-webhooks", "-other", "has no argument -webhooks=:9443"},
		{"config/kustomization.yaml", "webhook/service.yaml", "", "does not list webhook/service.yaml"},
		{"go.mod", "go 1.26.0", "go 1.25.0", "run 'go mod edit -go=1.26.0'"},
		{"go.mod", "go 1.26.0", "go 1.99.0", "Dockerfile builds with golang:1.26, older than Go 1.99.0"},
		{"go.mod", "k8s.io/client-go v0.37.2", "k8s.io/client-go v0.36.0", "k8s.io/client-go v0.36.0, older than v0.37.2"},
		{"go.mod", "k8s.io/client-go v0.37.2", "k8s.io/client-go v0.38.0", "different versions of k8s.io/api, k8s.io/apimachinery, k8s.io/client-go"},
		{"go.mod", library + " v0.1.0", library + " v0.0.9", "v0.0.9, older than this program, v0.1.0; run 'go get " + library + "@v0.1.0'"},
		{"go.mod", library + " v0.1.0", library + " v0.2.0", "this program is v0.1.0, older than"},
		{"api/v1alpha1/doc.go", "controller-gen@v0.23.0", "controller-gen@v0.22.1", "runs controller-gen v0.22.1, older than v0.23.0"},
		{"config/rbac/role.yaml", "  - configmaps\n", "  - secrets\n", "greeting_controller.go reads the kind ConfigMap, and config/rbac/role.yaml does not grant it; add '// +kubebuilder:rbac:groups=\"\",resources=configmaps,verbs=list;watch'"},
		{"config/rbac/role.yaml", "  - greetings\n  verbs:\n  - list\n  - watch\n", "  - greetings\n  verbs:\n  - list\n", "reads the kind Greeting"},
		{"config/rbac/role.yaml", "  - greetings/status\n", "", "greeting_controller.go writes the status of the kind Greeting, and config/rbac/role.yaml does not grant it; add '// +kubebuilder:rbac:groups=\"demo.example.com\",resources=greetings/status,verbs=update'"},
		{"config/rbac/role.yaml", "  - greetings/finalizers\n", "", "greeting_controller.go sets owner references to the kind Greeting, and config/rbac/role.yaml does not grant it; add '// +kubebuilder:rbac:groups=\"demo.example.com\",resources=greetings/finalizers,verbs=update'"},
		{"greeting_controller.go", "status.Update(ctx, client.For[*v1alpha1.Greeting](r.client), s, obj)", "client.For[*v1alpha1.Greeting](r.client).ApplyStatus(ctx, desired)", "resources=greetings/status,verbs=patch'"},
		{"config/crd/demo.example.com_greetings.yaml", "    subresources:\n      status: {}\n", "", "greeting_controller.go writes the status of the kind Greeting, and its CRD has no subresource for it; add '// +kubebuilder:subresource:status' above the type in api/v1alpha1"},
		{"greeting_controller.go", "cache.For[*corev1.ConfigMap]", "cache.For[*corev1.Pod]", "resources=pods"},
	} {
		bad := maps.Clone(good)
		bad[c.file] = strings.Replace(bad[c.file], c.before, c.after, 1)
		testkit.NotEqual(t, bad[c.file], good[c.file], fmt.Sprintf("%s has no %q", c.file, c.before))
		if found := find(bad, "v0.1.0"); len(found) != 1 || !strings.Contains(found[0], c.want) {
			t.Errorf("with %q in %s, it finds %q, want one with %q", c.after, c.file, found, c.want)
		}
	}
}

// TestStatusWrites finds the kind of a handle that has a name.
func TestStatusWrites(t *testing.T) {
	for text, want := range map[string][]statusWrite{
		"\treturn status.Update(ctx, client.For[*v1.Shop](r.client), s, obj)":                   {{"v1", "Shop", "update"}},
		"\tshops := client.For[*v1.Shop](c)\n\treturn status.Update(ctx, shops, s, obj)":        {{"v1", "Shop", "update"}},
		"type R struct {\n\tshops *client.Handle[*v1.Shop]\n}\n\tr.shops.UpdateStatus(ctx, o)":  {{"v1", "Shop", "update"}},
		"\tr := &R{shops: client.For[*v1.Shop](c)}\n\tstatus.Update(ctx, r.shops, s, obj)":      {{"v1", "Shop", "update"}},
		"\tclient.For[*v1.Shop](mgr.Client()).PatchStatus(ctx, key, pt, data)":                  {{"v1", "Shop", "patch"}},
		"\tall := client.For[*v1.Shop](c)\n\tall := client.For[*v1.Bus](c)\n\tall.ApplyStatus(": nil,
		"\tclient.For[*v1.Shop](c).Update(ctx, obj)\n\tother.UpdateStatus(ctx, obj)":            nil,
	} {
		testkit.SlicesEqual(t, statusWrites(text), want, fmt.Sprintf("in %q, it finds", text))
	}
}

func TestNew_RefusesBadInput(t *testing.T) {
	t.Setenv("GOWORK", "off")
	library := checkout(t)
	good := []string{"new", "shop-operator", "--module", "example.org/shop", "--setpoint", library}
	project := made(t)
	if _, err := setpoint(t, project, good...); err == nil || !strings.Contains(err.Error(), "is in the project shop-operator; add a kind to it with 'setpoint add kind', or run 'cd ..' first") {
		t.Errorf("in a project, it returns %v", err)
	}
	testkit.ErrorContains(t, testkit.Err(setpoint(t, filepath.Join(project, "config", "crd"), good...)), "or run 'cd ../../..' first", "below a project, it returns")
	for want, args := range map[string][]string{
		"give one argument":     {"new"},
		"the name \"Shop\"":     {"new", "Shop", "--module", "example.org/shop", "--setpoint", library},
		"give the Go module":    {"new", "shop-operator", "--setpoint", library},
		"malformed import path": {"new", "shop-operator", "--module", "example.org/a b", "--setpoint", library},
		"--module net/http: Go": {"new", "shop-operator", "--module", "net/http", "--setpoint", library},
		"version at the end":    {"new", "shop-operator", "--module", "example.org/shop/v1", "--setpoint", library},
		"not built from a rel":  {"new", "shop-operator", "--module", "example.org/shop"},
		"the name \"Bus\"":      {"new", "Bus", "--module", "example.org/shop"},
		"the kind \"bus\"":      {"new", "bus-operator", "--module", "example.org/bus", "--kind", "bus"},
		"the kind \"shop\"":     append(good, "--kind", "shop"),
		"the kind Main":         append(good, "--kind", "Main"),
		"the kind List: Kube":   append(good, "--kind", "List"),
		"the kind ShopList":     append(good, "--kind", "ShopList"),
		"for Kubernetes' own":   {"new", "net-operator", "--module", "example.org/net-operator", "--kind", "Net", "--group", "net.k8s.io", "--setpoint", library},
		"the plural \"Shops\"":  append(good, "--plural", "Shops"),
		"--group \"shop\"":      append(good, "--group", "shop"),
		"there is no checkout":  append(good, "--setpoint", "."),
	} {
		dir := t.TempDir()
		if _, err := setpoint(t, dir, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("setpoint %s returns %v, want %q", strings.Join(args, " "), err, want)
		}
		if all := filesOf(t, dir); len(all) > 0 {
			t.Errorf("setpoint %s left %v", strings.Join(args, " "), all.names())
		}
	}
	dir := t.TempDir()
	good[3] = "shop" // Go accepts names without a dot
	out, err := setpoint(t, dir, good...)
	if err != nil || !strings.HasPrefix(out, "made shop-operator: its kind is Greeting of the group demo.example.com, its plural is greetings; these are hard") {
		t.Fatalf("it prints %q and returns %v", out, err)
	}
	before := filesOf(t, dir)
	testkit.ErrorContains(t, testkit.Err(setpoint(t, dir, good...)), "the directory shop-operator exists", "a second time, it returns")
	if !maps.Equal(before, filesOf(t, dir)) {
		t.Error("the second time changed files")
	}
}

func TestPluralOf(t *testing.T) {
	for noun, want := range map[string]string{
		"proxy": "proxies", "gateway": "gateways", "bus": "buses", "box": "boxes", "batch": "batches", "shop": "shops", "y": "ys",
	} {
		testkit.Equal(t, pluralOf(noun), want, fmt.Sprintf("the plural of %s", noun))
	}
}
