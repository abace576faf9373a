// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"zero":     {Options{}, "nil"},
		"timeouts": {Options{StartTimeout: time.Second, StopTimeout: time.Second}, "nil"},
		"start":    {Options{StartTimeout: -1}, "Options.StartTimeout"},
		"stop":     {Options{StopTimeout: -1}, "Options.StopTimeout"},
		"two":      {Options{Kubeconfig: "a", UseKubebuilderAssets: true}, "Options.Kubeconfig"},
	} {
		if got := errorText(test.options.Validate()); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %q", name, got, test.want)
		}
	}
	o := Options{}.withDefaults()
	if o.StartTimeout != 60*time.Second || o.StopTimeout != 10*time.Second || o.Progress != os.Stderr {
		t.Errorf("the defaults are not those that are documented: %+v", o)
	}
}

func TestReadManifests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second}\n",
		"a.yml":      "---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: first}\n---\n",
		"c.json":     `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "third"}}`,
		"README.md":  "no manifest",
		"sub/d.yaml": "not read",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := readManifests(dir, filepath.Join(dir, "b.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range found {
		names = append(names, m.object.GetName())
	}
	if got := strings.Join(names, " "); got != "first second third second" {
		t.Errorf("read %s", got)
	}
	if found[0].where != filepath.Join(dir, "a.yml")+", document 2" {
		t.Errorf("the first is said to be in %s", found[0].where)
	}
}

// E4: the error names an invalid manifest and its problem.
func TestWrongManifests(t *testing.T) {
	for text, want := range map[string]string{
		"a: b: c":                            "document 1 is not valid YAML",
		"- a\n- b":                           "document 1 is not valid YAML",
		"kind: A\nkind: B":                   `key "kind" already set`,
		"kind: ConfigMap":                    "document 1 is not a Kubernetes object: it needs a apiVersion",
		"apiVersion: v1\nkind: 7":            "it needs a kind",
		"apiVersion: v1\nkind: A":            "it needs a name",
		"# fine\n---\napiVersion: v1\n---\n": "document 2 is not a Kubernetes object",
	} {
		_, err := parseManifests("file.yaml", strings.NewReader(text))
		if got := errorText(err); !strings.Contains(got, "file.yaml") || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %q", text, got, want)
		}
	}
	for path, want := range map[string]string{"no/such/file.yaml": "no/such/file.yaml", t.TempDir(): "has no file *.yaml"} {
		if _, err := readManifests(path); !strings.Contains(errorText(err), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestTail(t *testing.T) {
	var out buffer
	last := &tail{prefix: "p: ", out: &out}
	write := func(text string) {
		if n, err := last.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	write("one\ntwo\nhal")
	write("f\nopen")
	if got := last.String(); got != "one\ntwo\nhalf\nopen" {
		t.Errorf("%q", got)
	}
	if got := out.String(); got != "p: one\np: two\np: half\n" {
		t.Errorf("passed on: %q", got)
	}
	write("\n" + strings.Repeat("x\n", 2*tailLines) + strings.Repeat("y", 2*maxLine) + "\nend\n")
	lines := strings.Split(last.String(), "\n")
	if len(lines) != tailLines || lines[tailLines-1] != "end" || len(lines[tailLines-2]) != maxLine {
		t.Errorf("%d lines, the last of %d and %d bytes", len(lines), len(lines[len(lines)-2]), len(lines[len(lines)-1]))
	}
}

func TestReportReader(t *testing.T) {
	found := make(chan report, 1)
	r := &reportReader{found: found}
	for _, part := range []string{`{"addr`, `ess": "here"}` + "\nmore\n", "and more\n"} {
		if n, err := r.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if got := <-found; got.Address != "here" || got.Error != "" {
		t.Errorf("%+v", got)
	}
}

// A build prints its cost beforehand. Without a terminal, a long build then prints progress lines.
func TestGoOutput(t *testing.T) {
	var out buffer
	report := &progressReport{out: &out}
	report.begin("downloading", 0)
	o := &tail{skips: report.took}
	for _, part := range []string{"go: downloading k8s.io/api v0.36.3\ngo: down", "loading k8s.io/client-go v0.36.3\n"} {
		if _, err := o.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if got := report.textLocked(); got != "0s, downloading: module 2, k8s.io/client-go v0.36.3" {
		t.Errorf("%q", got)
	}
	report.begin("compiling", 2491)
	if _, err := o.Write([]byte("k8s.io/api/core/v1\nk8s.io/api/apps/v1\n# broken/package\nbroken/package/a.go:1:2: no\nlast")); err != nil {
		t.Fatal(err)
	}
	if got := report.textLocked(); got != "0s, compiling: 2 of at most 2491 packages" {
		t.Errorf("%q", got)
	}
	if got := o.String(); got != "# broken/package\nbroken/package/a.go:1:2: no\nlast" {
		t.Errorf("what is left for an error: %q", got)
	}
}
