package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPluralOf(t *testing.T) {
	for noun, want := range map[string]string{
		"proxy": "proxies", "gateway": "gateways", "bus": "buses", "box": "boxes", "batch": "batches", "shop": "shops", "y": "ys",
	} {
		if got := pluralOf(noun); got != want {
			t.Errorf("the plural of %s is %s, want %s", noun, got, want)
		}
	}
}

func TestRename_RefusesBadNames(t *testing.T) {
	good := names{"Proxy", "", "net.example.org", "example.org/proxy"}
	for _, change := range []func(*names){
		func(n *names) { n.kind = "proxy" }, func(n *names) { n.kind = "" }, func(n *names) { n.plural = "Proxies" },
		func(n *names) { n.group = "net" }, func(n *names) { n.group = "" }, func(n *names) { n.module = "" },
	} {
		n := good
		change(&n)
		if err := rename(t.TempDir(), n); err == nil {
			t.Errorf("%+v was accepted", n)
		}
	}
}

// TestRename_LeavesAWholeProject renames a copy of the template. Then no file has the old names,
// the generators change nothing, and it compiles. With SETPOINT_FULL=1, its tests pass against a
// real API server.
func TestRename_LeavesAWholeProject(t *testing.T) {
	library := output(t, ".", nil, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/setpoint-dev/setpoint")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../..")); err != nil {
		t.Fatal(err)
	}
	if err := rename(dir, names{"Proxy", "", "net.example.org", "example.org/proxy"}); err != nil {
		t.Fatal(err)
	}
	renamed := files(t, dir)
	for name, text := range renamed {
		for _, old := range []string{"greeting", "demo.example", "examples/template", "Setpoint Authors", "hack"} {
			if strings.Contains(strings.ToLower(name+string(text)), strings.ToLower(old)) {
				t.Errorf("%s still has %q", name, old)
			}
		}
	}
	for _, name := range []string{"api/v1alpha1/proxy_types.go", "config/crd/net.example.org_proxies.yaml"} {
		if renamed[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}

	output(t, dir, nil, "go", "mod", "edit", "-replace=github.com/setpoint-dev/setpoint="+library)
	alone := []string{"GOWORK=off"}
	output(t, dir, alone, "go", "generate", "./...")
	for name, text := range files(t, dir) {
		if name != "go.mod" && !bytes.Equal(text, renamed[name]) {
			t.Errorf("go generate changes %s:\n%s", name, text)
		}
	}
	output(t, dir, alone, "go", "vet", "./...")
	if os.Getenv("SETPOINT_FULL") != "" {
		output(t, dir, alone, "go", "test", "./...")
	}
}

// output runs a command and returns what it prints.
func output(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		found[filepath.ToSlash(rel)], err = os.ReadFile(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
