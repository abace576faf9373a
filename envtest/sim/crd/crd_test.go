// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim/crd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lamps = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.crd.dev}
spec:
  group: crd.dev
  scope: Namespaced
  names: {kind: Lamp, plural: lamps}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [color]
            x-kubernetes-validations:
            - {rule: "self.watts < 100 || self.color == 'white'", message: "only white lamps may be strong"}
            - {rule: "self.color == oldSelf.color", message: "color is immutable"}
            properties:
              color: {type: string, enum: [red, white], maxLength: 5}
              watts: {type: integer, minimum: 1, default: 40}
              mode: {type: object, default: {}, properties: {blink: {type: boolean, default: true}}}
              sockets:
                type: array
                maxItems: 3
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}}}
          status:
            type: object
            properties: {lit: {type: boolean}}
`

const path = "/apis/crd.dev/v1/namespaces/default/lamps"

// exchanges are requests whose answers must equal those of the real server.
var exchanges = []struct{ name, method, path, body string }{
	{"defaults and pruning", "POST", path, `{"metadata":{"name":"a"},"spec":{"color":"red","extra":1,"mode":{"more":2}},"other":3}`},
	{"null takes the default", "POST", path, `{"metadata":{"name":"b"},"spec":{"color":"red","watts":null}}`},
	{"required", "POST", path, `{"metadata":{"name":"c"},"spec":{}}`},
	{"enum and minimum", "POST", path, `{"metadata":{"name":"c"},"spec":{"color":"blue","watts":0}}`},
	{"wrong type", "POST", path, `{"metadata":{"name":"c"},"spec":{"color":7}}`},
	{"not an object", "POST", path, `{"metadata":{"name":"c"},"spec":"x"}`},
	{"duplicate keys of a map list", "POST", path, `{"metadata":{"name":"c"},"spec":{"color":"red","sockets":[{"name":"x"},{"name":"x"}]}}`},
	{"too many items", "POST", path, `{"metadata":{"name":"c"},"spec":{"color":"red","sockets":[{"name":"1"},{"name":"2"},{"name":"3"},{"name":"4"}]}}`},
	{"a rule", "POST", path, `{"metadata":{"name":"c"},"spec":{"color":"red","watts":100}}`},
	{"a transition rule", "PATCH", path + "/a", `{"spec":{"color":"white"}}`},
	{"a patch that the schema rejects", "PATCH", path + "/a", `{"spec":{"watts":-1}}`},
	{"a patch of unknown fields", "PATCH", path + "/a", `{"spec":{"extra":1}}`},
	{"a removed default comes back", "PATCH", path + "/a", `{"spec":{"watts":null}}`},
	{"a status", "PATCH", path + "/a/status", `{"status":{"lit":true,"dim":1}}`},
	{"a status that the schema rejects", "PATCH", path + "/a/status", `{"status":{"lit":"yes"}}`},
	{"an invalid definition", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"x.crd.dev"},"spec":{"group":"crd.dev",
		"scope":"Namespaced","names":{"kind":"X","plural":"x"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
		"properties":{"spec":{"type":"text"}}}}}]}}`},
	{"a changed scope", "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/lamps.crd.dev", `{"spec":{"scope":"Cluster"}}`},
}

func TestV1_SchemasAnswerLikeTheRealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
	definition := manifest(t, lamps)
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	file := t.TempDir() + "/lamps.yaml"
	if err := os.WriteFile(file, []byte(lamps), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cluster.InstallCRDs(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	real, fake := client(t, cluster.Config()), client(t, crd.New(t, runtime.NewScheme(), definition))
	for _, e := range exchanges {
		want, has := real.send(t, e.method, e.path, e.body), fake.send(t, e.method, e.path, e.body)
		if !reflect.DeepEqual(want, has) {
			t.Errorf("%s:\nreal %s\nsim  %s", e.name, text(want), text(has))
		}
	}
}

// side is a client of one server.
type side struct {
	host string
	http *http.Client
}

func client(t *testing.T, cfg *rest.Config) side {
	t.Helper()
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return side{cfg.Host, c}
}

// send returns the code and the body, without what the server chooses.
func (s side) send(t *testing.T, method, path, body string) map[string]any {
	t.Helper()
	object := map[string]any{"apiVersion": "crd.dev/v1", "kind": "Lamp"}
	if strings.Contains(path, "customresourcedefinitions") {
		object = map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
	}
	contentType := "application/json"
	if method == http.MethodPatch {
		object, contentType = map[string]any{}, "application/merge-patch+json"
	}
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.host+path, strings.NewReader(text(object)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	resp, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer := map[string]any{}
	if err := json.Unmarshal(data, &answer); err != nil {
		t.Fatalf("%s %s: %s", method, path, bytes.TrimSpace(data))
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(answer, "metadata", field)
	}
	sortCauses(answer)
	answer["HTTP"] = resp.StatusCode
	return answer
}

// sortCauses sorts the causes of an error, and drops its message, which repeats them: the schema
// validation finds errors in the order of a map.
func sortCauses(answer map[string]any) {
	causes, _, _ := unstructured.NestedSlice(answer, "details", "causes")
	if len(causes) < 2 {
		return
	}
	slices.SortFunc(causes, func(a, b any) int { return strings.Compare(text(a), text(b)) })
	_ = unstructured.SetNestedSlice(answer, causes, "details", "causes")
	delete(answer, "message")
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func manifest(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
