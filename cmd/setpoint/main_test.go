// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
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
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// made returns the directory of a new project, which uses this tree.
func made(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("GOWORK", "off")
	library, dir := checkout(t), t.TempDir()
	args = append([]string{"new", "shop-operator", "--module", "example.org/shop-operator/v2", "--setpoint", library}, args...)
	if _, err := setpoint(t, dir, args...); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "shop-operator")
}

func filesOf(t *testing.T, dir string) files {
	t.Helper()
	all, err := (&project{dir: dir}).read()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTemplate_IsCurrent: the embedded copy is examples/template.
func TestTemplate_IsCurrent(t *testing.T) {
	embedded := files{}
	for _, f := range txtar.Parse(packed).Files {
		embedded[f.Name] = string(f.Data)
	}
	for name, text := range filesOf(t, "../../examples/template") {
		if embedded[name] != text {
			t.Errorf("%s differs from the embedded one: run go generate in cmd/setpoint", name)
		}
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
					if strings.Contains(strings.ToLower(name+text), strings.ToLower(old)) {
						t.Errorf("%s still has %q", name, old)
					}
				}
			}
			found, err := doctor(t.Context(), dir)
			if err != nil || len(found) > 0 {
				t.Errorf("doctor finds %q, %v", found, err)
			}
			if full {
				must(t, dir, "go", "test", "./...")
			}
		})
	}
}

// TestAddKind: the project has a second kind and compiles. A failed command changes nothing.
func TestAddKind(t *testing.T) {
	dir := made(t)
	must(t, dir, "git", "init", "-q", ".")
	commit := func() {
		t.Helper()
		must(t, dir, "git", "add", "-A")
		must(t, dir, "git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "a")
	}
	commit()
	out, err := setpoint(t, dir, "add", "kind", "Policy", "--cluster-scoped")
	if err != nil || !strings.Contains(out, "policy_controller.go\n") || !strings.Contains(out, "operator.go\n") {
		t.Fatalf("it printed %q and returned %v", out, err)
	}
	if os.Getenv("SETPOINT_FULL") != "" {
		must(t, dir, "go", "test", "./...")
	}
	refuse := func(want string, args ...string) {
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
	refuse("changes that are not committed", "add", "kind", "Bus")
	commit()
	refuse("the kind Policy is there already", "add", "kind", "Policy")
	refuse("another kind has the plural policies", "add", "kind", "Pol", "--plural", "policies")
	refuse("a capital first", "add", "kind", "bus")
	refuse("give one argument", "add", "kind")
	refuse("redeclared", "add", "kind", "PolicySpec") // go vet says so

	operator := filepath.Join(dir, "operator.go")
	text, err := os.ReadFile(operator)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.NewReplacer("addGreeting(mgr),", "addGreeting(mgr), addPolicy(mgr),", "\t\taddPolicy(mgr),\n", "").Replace(string(text))
	if err := os.WriteFile(operator, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	commit()
	refuse(`operator.go has no line such as "addShop(mgr),"`, "add", "kind", "Bus")
	if _, err := setpoint(t, dir, "doctor"); err == nil || !strings.Contains(err.Error(), "operator.go has no line") {
		t.Errorf("doctor returns %v", err)
	}
	must(t, dir, "git", "checkout", "-q", "HEAD~1", ".")
	commit()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	refuse("nothing was changed", "add", "kind", "Bus")
}

// TestDoctor names files that are not as the markers say.
func TestDoctor(t *testing.T) {
	dir := made(t)
	types := filepath.Join(dir, "api", "v1alpha1", "greeting_types.go")
	text, err := os.ReadFile(types)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(types, bytes.Replace(text, []byte("MinLength=1"), []byte("MinLength=2"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	const want = "config/crd/demo.example.com_greetings.yaml is not as the types and markers say; run 'make generate'"
	if _, err := setpoint(t, dir, "doctor"); err == nil || err.Error() != want {
		t.Errorf("doctor returns %v", err)
	}
	if _, err := setpoint(t, t.TempDir(), "doctor"); err == nil || !strings.Contains(err.Error(), "run it at the top of a project") {
		t.Errorf("outside of a project, doctor returns %v", err)
	}
}

func TestNew_RefusesBadInput(t *testing.T) {
	good := []string{"new", "shop-operator", "--module", "example.org/shop"}
	for want, args := range map[string][]string{
		"give one argument":     {"new"},
		"the name \"Shop\"":     {"new", "Shop", "--module", "example.org/shop"},
		"give the Go module":    {"new", "shop-operator"},
		"malformed import path": {"new", "shop-operator", "--module", "example.org/a b"},
		"the kind \"shop\"":     append(good, "--kind", "shop"),
		"the kind Main":         append(good, "--kind", "Main"),
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
	if _, err := setpoint(t, dir, good...); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	if _, err := setpoint(t, dir, good...); err == nil || !strings.Contains(err.Error(), "the directory shop-operator exists") {
		t.Errorf("a second time, it returns %v", err)
	}
	if !maps.Equal(before, filesOf(t, dir)) {
		t.Error("the second time changed files")
	}
}

func TestPluralOf(t *testing.T) {
	for noun, want := range map[string]string{
		"proxy": "proxies", "gateway": "gateways", "bus": "buses", "box": "boxes", "batch": "batches", "shop": "shops", "y": "ys",
	} {
		if got := pluralOf(noun); got != want {
			t.Errorf("the plural of %s is %s, want %s", noun, got, want)
		}
	}
}
