// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestV1_OpenAPIDocuments compares the documents of all group versions: paths, operations,
// parameters and media types completely, and the schemas of the real server. The package doc of the
// simulation lists what is masked here.
func TestV1_OpenAPIDocuments(t *testing.T) {
	host, client := plain.start(t)
	if realMinor.Load() < newestMinor() {
		t.Skip("documents differ between releases; see docs/versions.md")
	}
	testkit.NoError(t, (&side{host: host, client: client}).described(t.Context()))
	fake, err := newSim()
	testkit.NoError(t, err)
	list := fetch(t, fake.client, fake.host+"/openapi/v3")
	paths, _ := list["paths"].(map[string]any)
	if len(paths) < 20 {
		t.Fatalf("only %d documents", len(paths))
	}
	real, _ := fetch(t, client, host+"/openapi/v3")["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if real[path] == nil {
			t.Errorf("the real server has no document %s", path)
		}
		has, want := fetch(t, fake.client, fake.host+"/openapi/v3/"+path), fetch(t, client, host+"/openapi/v3/"+path)
		for _, line := range diffDocuments(want, has) {
			t.Errorf("%s: %s", path, line)
		}
	}
}

// isOpenAPI reports whether a step reads OpenAPI documents.
func isOpenAPI(one step) bool { return strings.HasPrefix(one.target, "/openapi/v3") }

// describesLess is the difference that diffDocuments leaves out.
const describesLess = "OpenAPI v3 describes group versions only"

// diffDocuments compares two OpenAPI documents, or lists of documents. It leaves out what the
// package doc of the simulation lists, and nothing else.
func diffDocuments(want, has any) []string {
	real, ok := runtime.DeepCopyJSONValue(want).(map[string]any)
	fake, both := runtime.DeepCopyJSONValue(has).(map[string]any)
	switch {
	case !ok || !both:
		return differ("document", want, has)
	case real["openapi"] == nil:
		return differ("list", groupVersions(real), groupVersions(fake))
	}
	lines := comparePaths(real["paths"], fake["paths"])
	lines = append(lines, compareSchemas(within(real, "components", "schemas"), within(fake, "components", "schemas"))...)
	for _, doc := range []map[string]any{real, fake} {
		delete(doc, "paths")
		delete(within(doc, "components"), "schemas")
	}
	return append(lines, differ("document", masked(real), masked(fake))...)
}

// groupVersions returns the documents of group versions in a list, without the hashes.
func groupVersions(list map[string]any) any {
	paths := map[string]any{}
	for path := range within(list, "paths") {
		if parts := strings.Split(path, "/"); parts[0] == "api" && len(parts) == 2 || parts[0] == "apis" && len(parts) == 3 {
			if strings.HasSuffix(strings.Join(parts[1:len(parts)-1], ""), ".example.com") {
				continue // of another script
			}
			url, _ := within(list, "paths", path)["serverRelativeURL"].(string)
			paths[path], _, _ = strings.Cut(url, "=")
		}
	}
	return paths
}

func fetch(t *testing.T, client *http.Client, url string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	testkit.NoError(t, err)
	resp, err := client.Do(r)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	testkit.NoError(t, err)
	content := map[string]any{}
	testkit.NoError(t, json.Unmarshal(data, &content), url, string(data))
	return content
}

func within(content map[string]any, path ...string) map[string]any {
	for _, field := range path {
		content, _ = content[field].(map[string]any)
	}
	return content
}

// notServed are the ends of paths that the simulation does not serve.
var notServed = []string{
	"/attach", "/ephemeralcontainers", "/exec", "/log", "/portforward", "/proxy", "/proxy/{path}", "/resize", "/token", "/approval",
}

// comparePaths compares paths with their operations, without descriptions and CBOR.
func comparePaths(want, has any) []string {
	real, _ := want.(map[string]any)
	fake, _ := has.(map[string]any)
	for path := range real {
		if slices.ContainsFunc(notServed, func(end string) bool { return strings.HasSuffix(path, end) }) {
			delete(real, path)
		}
	}
	for _, p := range []map[string]any{real, fake} {
		for _, path := range p {
			moveParameters(path.(map[string]any))
		}
	}
	return differ("", masked(real), masked(fake))
}

// moveParameters gives the parameters of a path to its operations, by name.
func moveParameters(path map[string]any) {
	shared, _ := path["parameters"].([]any)
	delete(path, "parameters")
	for _, o := range path {
		operation := o.(map[string]any)
		own, _ := operation["parameters"].([]any)
		byName := map[string]any{}
		for _, p := range append(slices.Clone(own), shared...) {
			byName[p.(map[string]any)["name"].(string)] = p
		}
		operation["parameters"] = byName
	}
}

// masked removes what the simulation does not have.
func masked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			_, text := field.(string)
			_, list := field.([]any)
			if name == "description" && text || name == "enum" && list || name == "x-kubernetes-unions" && list || strings.Contains(name, "cbor") {
				delete(v, name)
				continue
			}
			masked(field)
		}
	case []any:
		for _, element := range v {
			masked(element)
		}
	}
	return v
}

// compareSchemas compares the schemas and the fields of the real server. The simulation may have
// more, because client-go is newer.
func compareSchemas(want, has map[string]any) []string {
	var lines []string
	for name := range want {
		real, fake := within(want, name), within(has, name)
		if strings.Contains(name, "apiextensions") || strings.Contains(name, "apiregistration") {
			continue
		}
		if fake == nil && notSupported[name] {
			continue
		}
		if fake == nil {
			lines = append(lines, name+": sim has none")
			continue
		}
		properties := within(fake, "properties")
		for field, property := range within(real, "properties") {
			if newer[name+"."+field] {
				continue
			}
			lines = append(lines, differ(name+"."+field, comparable(property), comparable(properties[field]))...)
		}
		for _, s := range []map[string]any{real, fake} {
			if strings.Contains(name, "apimachinery") {
				s[kindExtension] = kindsOf(s)
			}
			delete(s, "properties")
			delete(s, "required") // follows the JSON tags
		}
		lines = append(lines, differ(name, comparable(real), comparable(fake))...)
	}
	return lines
}

const kindExtension = "x-kubernetes-group-version-kind"

// kindsOf returns the kinds of a type. Next to custom kinds, DeleteOptions names all groups, and
// these change with the version of Kubernetes.
func kindsOf(schema map[string]any) any {
	kinds, _ := schema[kindExtension].([]any)
	if len(kinds) > 2 {
		return "of all groups"
	}
	return kinds
}

// notSupported are the schemas of subresources that the simulation does not serve, and one that
// newer versions do not have.
var notSupported = map[string]bool{
	"io.k8s.api.authentication.v1.BoundObjectReference":     true,
	"io.k8s.api.authentication.v1.TokenRequest":             true,
	"io.k8s.api.authentication.v1.TokenRequestSpec":         true,
	"io.k8s.api.authentication.v1.TokenRequestStatus":       true,
	"io.k8s.api.resource.v1.NodeAllocatableResourceMapping": true,
}

// newer are fields that the versions have in different forms.
var newer = map[string]bool{
	"io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus.resources":   true,
	"io.k8s.api.core.v1.PodStatus.nodeAllocatableResourceClaimStatuses": true,
	"io.k8s.api.resource.v1.Device.nodeAllocatableResourceMappings":     true,
}

// comparable removes descriptions from a schema, and forms without a meaning.
func comparable(property any) any {
	p, _ := masked(property).(map[string]any)
	if p["x-kubernetes-map-type"] == "granular" { // as without it
		delete(p, "x-kubernetes-map-type")
	}
	if all, _ := p["allOf"].([]any); len(all) == 1 { // a reference with a description
		maps.Copy(p, all[0].(map[string]any))
		delete(p, "allOf")
	}
	return p
}

func differ(path string, want, has any) []string {
	real, ok := want.(map[string]any)
	fake, both := has.(map[string]any)
	if !ok || !both {
		if a, b := fmt.Sprint(want), fmt.Sprint(has); a != b {
			return []string{fmt.Sprintf("%s: real %.300s, sim %.300s", path, a, b)}
		}
		return nil
	}
	var lines []string
	names := maps.Clone(real)
	maps.Copy(names, fake)
	for name := range names {
		lines = append(lines, differ(path+" "+name, real[name], fake[name])...)
	}
	return lines
}
