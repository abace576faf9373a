// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/envtest/sim/crd"
	"github.com/setpoint-dev/setpoint/internal/testkit"
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

// exchanges are requests that both servers must answer alike.
var exchanges = []struct{ name, method, path, body string }{
	{"defaults and pruning", "POST", path, `{"metadata":{"name":"a"},"spec":{"color":"red","extra":1,"mode":{"more":2}},"other":3}`},
	{"null takes the default", "POST", path, `{"metadata":{"name":"b"},"spec":{"color":"red","watts":null}}`},
	{"unknown fields, strict", "POST", path + "?fieldValidation=Strict", `{"metadata":{"name":"c"},"spec":{"color":"red","extra":1,"mode":{"more":2}},"other":3}`},
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
	{"a strict patch of unknown fields", "PATCH", path + "/a?fieldValidation=Strict", `{"spec":{"extra":1}}`},
	{"a strict update of unknown fields", "PUT", path + "/a?fieldValidation=Strict", `{"metadata":{"name":"a"},"spec":{"color":"red","extra":1}}`},
	{"a strict apply of unknown fields", "APPLY", path + "/a?fieldValidation=Strict&fieldManager=m", `{"spec":{"color":"red","extra":1}}`},
	{"an apply of a map list", "APPLY", path + "/e?fieldManager=one", `{"spec":{"color":"red","sockets":[{"name":"x"}]}}`},
	{"another manager's item", "APPLY", path + "/e?fieldManager=two", `{"spec":{"sockets":[{"name":"y"}]}}`},
	{"a conflict", "APPLY", path + "/e?fieldManager=two", `{"spec":{"color":"white","sockets":[{"name":"y"}]}}`},
	{"the first item goes", "APPLY", path + "/e?fieldManager=one", `{"spec":{"color":"red"}}`},
	{"an apply of an unknown field", "APPLY", path + "/e?fieldManager=one", `{"spec":{"color":"red","extra":1}}`},
	{"an apply of a wrong type", "APPLY", path + "/e?fieldManager=one", `{"spec":{"color":"red","sockets":{"a":1}}}`},
	{"a removed default comes back", "PATCH", path + "/a", `{"spec":{"watts":null}}`},
	{"a status", "PATCH", path + "/a/status", `{"status":{"lit":true,"dim":1}}`},
	{"a status that the schema rejects", "PATCH", path + "/a/status", `{"status":{"lit":"yes"}}`},
	{"an invalid definition", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"x.crd.dev"},"spec":{"group":"crd.dev",
		"scope":"Namespaced","names":{"kind":"X","plural":"x"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
		"properties":{"spec":{"type":"text"}}}}}]}}`},
	{"a changed scope", "PATCH", definitions + "/lamps.crd.dev", `{"spec":{"scope":"Cluster"}}`},
}

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	access      = "/apis/authorization.k8s.io/v1/"
	pods        = `"resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}`
)

// served are requests about what a server serves.
var served = []struct{ name, method, path, body string }{
	{"core versions", "GET", "/api", ""},
	{"core resources", "GET", "/api/v1", ""},
	{"a group", "GET", "/apis/apps", ""},
	{"its resources", "GET", "/apis/apps/v1", ""},
	{"a group of two versions", "GET", "/apis/autoscaling", ""},
	{"no such group", "GET", "/apis/nosuch.dev/v1", ""},
	{"no such version", "GET", "/apis/apps/v9", ""},
	{"no such resource", "GET", "/api/v1/nosuch", ""},
	{"a custom group", "GET", "/apis/crd.dev", ""},
	{"its resources", "GET", "/apis/crd.dev/v1", ""},
	{"a definition", "GET", definitions + "/lamps.crd.dev", ""},
	{"a self review", "POST", access + "selfsubjectaccessreviews", `{"kind":"SelfSubjectAccessReview","spec":{` + pods + `}}`},
	{"an empty review", "POST", access + "selfsubjectaccessreviews", `{"kind":"SelfSubjectAccessReview","spec":{}}`},
	{"a review of nobody", "POST", access + "subjectaccessreviews", `{"kind":"SubjectAccessReview","spec":{` + pods + `}}`},
	{"a review of an administrator", "POST", access + "subjectaccessreviews",
		`{"kind":"SubjectAccessReview","spec":{"user":"a","groups":["system:masters"],` + pods + `}}`},
	{"a list of reviews", "GET", access + "selfsubjectaccessreviews", ""},
	{"a token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"kind":"TokenReview","spec":{"token":"x"}}`},
	{"no token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"kind":"TokenReview","spec":{}}`},
	{"names that are taken", "POST", definitions, `{"metadata":{"name":"lights.crd.dev"},"spec":{"group":"crd.dev","scope":"Namespaced",
		"names":{"kind":"Lamp","plural":"lights"},"versions":[` + anything("v1", true, true) + `]}}`},
	{"a conflict of names", "GET", definitions + "/lights.crd.dev", ""},
	{"a second version", "PATCH", definitions + "/lamps.crd.dev",
		`{"spec":{"versions":[` + anything("v1", true, true) + `,` + anything("v2", true, false) + `]}}`},
	{"it is served", "GET", "/apis/crd.dev/v2", ""},
	{"an object in it", "GET", "/apis/crd.dev/v2/namespaces/default/lamps/a", ""},
	{"another storage version", "PATCH", definitions + "/lamps.crd.dev",
		`{"spec":{"versions":[` + anything("v1", false, false) + `,` + anything("v2", true, true) + `]}}`},
	{"a version that is not served", "GET", path + "/a", ""},
	{"the other version", "GET", "/apis/crd.dev/v2/namespaces/default/lamps/a", ""},
	{"stored versions", "GET", definitions + "/lamps.crd.dev", ""},
	{"a stored version that is dropped", "PATCH", definitions + "/lamps.crd.dev", `{"spec":{"versions":[` + anything("v2", true, true) + `]}}`},
	{"a finalizer", "PATCH", "/apis/crd.dev/v2/namespaces/default/lamps/a", `{"metadata":{"finalizers":["crd.dev/wait"]}}`},
	{"a deletion", "DELETE", definitions + "/lamps.crd.dev", ""},
	{"it waits for its objects", "GET", definitions + "/lamps.crd.dev", ""},
	{"an object that is being deleted", "GET", "/apis/crd.dev/v2/namespaces/default/lamps/a", ""},
	{"a create meanwhile", "POST", "/apis/crd.dev/v2/namespaces/default/lamps", `{"apiVersion":"crd.dev/v2","metadata":{"name":"late"}}`},
	{"the last finalizer", "PATCH", "/apis/crd.dev/v2/namespaces/default/lamps/a", `{"metadata":{"finalizers":null}}`},
	{"the definition is gone", "GET", definitions + "/lamps.crd.dev", ""},
	{"its objects are not served", "GET", "/apis/crd.dev/v2/namespaces/default/lamps", ""},
}

// anything is a version whose schema allows everything.
func anything(name string, served, storage bool) string {
	return fmt.Sprintf(`{"name":%q,"served":%v,"storage":%v,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`,
		name, served, storage)
}

func TestV1_CustomResourceDefinitionsAnswerLikeTheRealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
	definition := manifest(t, lamps)
	cluster := testkit.Must(envtest.Start(t.Context(), envtest.Options{}))
	t.Cleanup(func() { testkit.NoError(t, cluster.Stop()) })
	file := t.TempDir() + "/lamps.yaml"
	testkit.NoError(t, os.WriteFile(file, []byte(lamps), 0o600))
	testkit.NoError(t, cluster.InstallCRDs(t.Context(), file))
	compareOpenAPI(t, cluster.Config(), crd.New(t, runtime.NewScheme(), definition).Config())
	real, fake := client(t, cluster.Config()), client(t, crd.New(t, runtime.NewScheme(), definition).Config())
	for _, e := range exchanges {
		compare(t, real, fake, e.name, e.method, e.path, e.body)
	}
	for _, e := range served {
		compare(t, real, fake, e.name, e.method, e.path, e.body)
	}
}

func TestLoad_RejectsWhatTheSchemaRejects(t *testing.T) {
	s := sim.NewServer()
	s.UseSchemas(crd.Schemas)
	blue := manifest(t, `{apiVersion: crd.dev/v1, kind: Lamp, metadata: {namespace: a, name: b}, spec: {color: red, watts: 0}}`)
	err := s.Load(runtime.NewScheme(), blue, manifest(t, lamps))
	const want = `sim: Lamp "b" is invalid: spec.watts: Invalid value: 0: spec.watts in body should be greater than or equal to 1; correct it`
	testkit.Equal(t, fmt.Sprint(err), want)
}

func TestLoad_RejectsAnInvalidSchema(t *testing.T) {
	s := sim.NewServer()
	s.UseSchemas(crd.Schemas)
	err := s.Load(runtime.NewScheme(), manifest(t, strings.Replace(lamps, "lit: {type: boolean}", "lit: {type: bit}", 1)))
	const want = `sim: CustomResourceDefinition "lamps.crd.dev" is invalid: ` +
		`spec.validation.openAPIV3Schema.properties[status].properties[lit].type: Unsupported value: "bit": `
	testkit.HasPrefix(t, fmt.Sprint(err), want)
	testkit.Equal(t, strings.HasSuffix(fmt.Sprint(err), "; correct it"), true, err)
}

// compare sends a request to both servers. What the real one does in the background may take a
// while to be seen.
func compare(t *testing.T, real, fake side, name, method, path, body string) {
	t.Helper()
	has := fake.send(t, method, path, body)
	want := real.send(t, method, path, body)
	for begin := time.Now(); method == http.MethodGet && !reflect.DeepEqual(want, has) && time.Since(begin) < 15*time.Second; {
		want = real.send(t, method, path, body)
	}
	if !reflect.DeepEqual(want, has) {
		t.Errorf("%s:\nreal %s\nsim  %s", name, text(want), text(has))
	}
}

// side is a client of one server.
type side struct {
	host string
	http *http.Client
}

func client(t *testing.T, cfg *rest.Config) side {
	t.Helper()
	c := testkit.Must(rest.HTTPClientFor(cfg))
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
	if group, version, ok := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/"); ok && strings.HasSuffix(group, "n.k8s.io") {
		version, _, _ = strings.Cut(version, "/")
		object = map[string]any{"apiVersion": group + "/" + version}
	}
	contentType := "application/json"
	switch method {
	case http.MethodPatch:
		object, contentType = map[string]any{}, "application/merge-patch+json"
	case "APPLY":
		method, contentType = http.MethodPatch, "application/apply-patch+yaml"
	}
	var content io.Reader = http.NoBody
	if body != "" {
		testkit.NoError(t, json.Unmarshal([]byte(body), &object))
		content = strings.NewReader(text(object))
	}
	r := testkit.Must(http.NewRequestWithContext(t.Context(), method, s.host+path, content))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "crd/v1")
	resp := testkit.Must(s.http.Do(r))
	defer resp.Body.Close()
	data := testkit.Must(io.ReadAll(resp.Body))
	data = instants.ReplaceAll(data, []byte("<time>"))
	data = chosen.ReplaceAll(data, []byte("$1<chosen>"))
	data = bytes.ReplaceAll(data, []byte(strings.TrimPrefix(s.host, "https://")), []byte("<host>"))
	answer := map[string]any{}
	if json.Unmarshal(data, &answer) != nil {
		answer["text"] = string(data)
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		unstructured.RemoveNestedField(answer, "metadata", field)
	}
	// The sim does not keep the entries of several versions.
	if answer["apiVersion"] != "crd.dev/v1" {
		unstructured.RemoveNestedField(answer, "metadata", "managedFields")
	}
	sortCauses(answer)
	answer["HTTP"] = resp.StatusCode
	return answer
}

var (
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	chosen   = regexp.MustCompile(`((?:resourceVersion|uid)\\+":\\+")[0-9a-f-]+`) // in a message
)

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
	testkit.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}
