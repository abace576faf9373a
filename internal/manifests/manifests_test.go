// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/manifests"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		testkit.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	found, err := manifests.Read(dir, filepath.Join(dir, "b.yaml"))
	testkit.NoError(t, err)
	var names []string
	for _, m := range found {
		names = append(names, m.Object.GetName())
	}
	testkit.Equal(t, strings.Join(names, " "), "first second third second")
	testkit.Equal(t, found[0].Where, filepath.Join(dir, "a.yml")+", document 2", "the first is said to be in")
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
		_, err := manifests.Parse("file.yaml", strings.NewReader(text))
		if got := fmt.Sprint(err); !strings.Contains(got, "file.yaml") || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %q", text, got, want)
		}
	}
	for path, want := range map[string]string{"no/such/file.yaml": "no/such/file.yaml", t.TempDir(): "has no file *.yaml"} {
		testkit.Contains(t, fmt.Sprint(testkit.Err(manifests.Read(path))), want, path)
	}
}
