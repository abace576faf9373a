// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/xeipuuv/gojsonschema"

	"github.com/setpoint-dev/setpoint/tools/internal/licenses"
	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

func TestManifest_GetsVersionAndSums(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../../..", ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest(text).Release("v9.8.7")
	platforms := m.Platforms()
	if len(platforms) != 5 {
		t.Fatalf("found %v, want 5 platforms", platforms)
	}
	for i, p := range platforms {
		m = m.WithSum(p, strings.Repeat(string("abcde"[i]), 64))
	}
	if !strings.Contains(string(m), "  version: v9.8.7\n") || strings.Count(string(m), "/download/v9.8.7/") != 5 {
		t.Errorf("another version than v9.8.7 is left in\n%s", m)
	}
	for i, p := range platforms {
		want := p.Archive() + "\n      sha256: " + strings.Repeat(string("abcde"[i]), 64) + "\n"
		if !strings.Contains(string(m), want) {
			t.Errorf("%s has no sum of its own in\n%s", p.Archive(), m)
		}
	}
	if v := m.Version(); v != "v9.8.7" {
		t.Errorf("Version returns %q", v)
	}
	if again := m.Release("v9.8.7"); again != m {
		t.Errorf("a second run changed\n%s\nto\n%s", m, again)
	}
	if lines, was := strings.Count(string(m), "\n"), strings.Count(string(text), "\n"); lines != was {
		t.Errorf("the manifest has %d lines, want %d", lines, was)
	}
}

func TestPack_HasTheSameBytesLater(t *testing.T) {
	from := filepath.Join(t.TempDir(), "program")
	for _, archive := range []string{"a.tar.gz", "a.zip"} {
		var all [][]byte
		for range 2 {
			if err := os.WriteFile(from, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			packed, err := pack(archive, []file{{"program", from, 0o755}, {"LICENSE", from, 0o644}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, packed)
			if err := os.Remove(from); err != nil { // the next file has another time and inode
				t.Fatal(err)
			}
		}
		if !bytes.Equal(all[0], all[1]) {
			t.Errorf("%s differs between two runs", archive)
		}
		if names := unpack(t, archive, all[0]); !slices.Equal(names, []string{"program -rwxr-xr-x text", "LICENSE -rw-r--r-- text"}) {
			t.Errorf("%s has %q", archive, names)
		}
	}
}

func unpack(t *testing.T, archive string, text []byte) []string {
	t.Helper()
	var found []string
	if strings.HasSuffix(archive, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			c, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			content, _ := io.ReadAll(c)
			found = append(found, f.Name+" "+f.Mode().String()+" "+string(content))
		}
		return found
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(r)
		found = append(found, h.Name+" "+h.FileInfo().Mode().String()+" "+string(content))
	}
}

// TestBOM_FollowsTheSchema lists the modules that the plugin links, and reads the schema from the
// module of the encoder.
func TestBOM_FollowsTheSchema(t *testing.T) {
	linked, err := licenses.Linked(t.Context(), filepath.Join("../../..", Module), modules.Workspace(Module))
	if err != nil {
		t.Fatal(err)
	}
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: modules.Library + "/" + Module}}
	info.Deps = append(info.Deps, &debug.Module{Path: modules.Library, Version: "(devel)"})
	for _, m := range linked {
		info.Deps = append(info.Deps, &debug.Module{Path: m.Path, Version: m.Version})
	}
	bom, err := parts(info, "v9.8.7", goList(t, "env", "GOMODCACHE"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := encode(&out, bom); err != nil {
		t.Fatal(err)
	}
	schema := filepath.Join(goList(t, "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go"), "schema")
	loader := gojsonschema.NewSchemaLoader()
	for _, name := range []string{"spdx.schema.json", "jsf-0.82.schemax.json"} {
		text, err := os.ReadFile(filepath.Join(schema, name))
		if err != nil {
			t.Fatal(err)
		}
		url := "http://cyclonedx.org/schema/" + strings.Replace(name, "schemax", "schema", 1)
		if err := loader.AddSchema(url, gojsonschema.NewBytesLoader(text)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(schema, "bom-1.6.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := loader.Compile(gojsonschema.NewBytesLoader(text))
	if err != nil {
		t.Fatal(err)
	}
	result, err := compiled.Validate(gojsonschema.NewBytesLoader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range result.Errors() {
		t.Errorf("not valid: %s", e)
	}
	for _, want := range []string{"/setpoint@v9.8.7\"", "/kubectl-setpoint@v9.8.7\"", "golang/std@1.26.8\"", "k8s.io/client-go@v0."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not name %s", want)
		}
	}
	var plain struct {
		Components []struct {
			PURL     string
			Licenses []struct{ License struct{ ID string } }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &plain); err != nil || len(plain.Components) != len(info.Deps)+1 {
		t.Errorf("has %d components (%v), want %d modules and std", len(plain.Components), err, len(info.Deps))
	}
	for _, c := range plain.Components {
		if len(c.Licenses) == 0 || c.Licenses[0].License.ID == "" || !strings.HasPrefix(c.PURL, "pkg:golang/") {
			t.Errorf("component %+v has no license or address", c)
		}
	}
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
