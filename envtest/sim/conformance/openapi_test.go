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
)

// TestV1_OpenAPIOfBuiltInKinds compares the documents of built-in group versions: paths,
// operations, parameters and media types completely. Of the schemas, it compares the fields that
// both versions of Kubernetes have. The package doc of the simulation lists what is masked here.
func TestV1_OpenAPIOfBuiltInKinds(t *testing.T) {
	host, client := plain.start(t)
	fake, err := newSim()
	if err != nil {
		t.Fatal(err)
	}
	list := fetch(t, fake.client, fake.host+"/openapi/v3")
	paths, _ := list["paths"].(map[string]any)
	if len(paths) < 20 {
		t.Fatalf("only %d documents", len(paths))
	}
	real, _ := fetch(t, client, host+"/openapi/v3")["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if strings.Contains(path, "setpoint.dev") {
			continue // see package envtest/sim/crd
		}
		if real[path] == nil {
			t.Errorf("the real server has no document %s", path)
		}
		has, want := fetch(t, fake.client, fake.host+"/openapi/v3/"+path), fetch(t, client, host+"/openapi/v3/"+path)
		for _, line := range comparePaths(want["paths"], has["paths"]) {
			t.Errorf("%s: %s", path, line)
		}
		for _, line := range compareSchemas(within(want, "components", "schemas"), within(has, "components", "schemas")) {
			t.Errorf("%s: %s", path, line)
		}
	}
}

func fetch(t *testing.T, client *http.Client, url string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	if err := json.Unmarshal(data, &content); err != nil {
		t.Fatalf("%s: %v\n%.200s", url, err, data)
	}
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
			if _, text := field.(string); name == "description" && text || name == "enum" || name == "x-kubernetes-unions" || strings.Contains(name, "cbor") {
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

// compareSchemas compares the fields that both versions have: their types, and how patches and
// applies treat them.
func compareSchemas(want, has map[string]any) []string {
	var lines []string
	for name, s := range want {
		real, fake := within(want, name), within(has, name)
		if fake == nil || strings.Contains(name, "apiextensions") || strings.Contains(name, "apiregistration") {
			continue
		}
		if real["x-kubernetes-group-version-kind"] != nil && !strings.Contains(name, "apimachinery") {
			lines = append(lines, differ(name, real["x-kubernetes-group-version-kind"], fake["x-kubernetes-group-version-kind"])...)
		}
		_ = s
		properties := within(fake, "properties")
		for field, property := range within(real, "properties") {
			if newer[name+"."+field] {
				continue
			}
			lines = append(lines, differ(name+"."+field, comparable(property), comparable(properties[field]))...)
		}
	}
	return lines
}

// newer are fields that the versions have in different forms.
var newer = map[string]bool{
	"io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus.resources":   true,
	"io.k8s.api.core.v1.PodStatus.nodeAllocatableResourceClaimStatuses": true,
	"io.k8s.api.resource.v1.Device.nodeAllocatableResourceMappings":     true,
}

// comparable reduces the schema of a field to its types and to its treatment by patches.
func comparable(property any) any {
	p, _ := masked(property).(map[string]any)
	delete(p, "default")
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
