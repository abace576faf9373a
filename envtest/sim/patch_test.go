// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// send sends one request and returns the answer's code, warnings and body.
func send(t *testing.T, api *sim.Server, method, path, contentType, body string) (int, []string, map[string]any) {
	t.Helper()
	code, header, answer := exchange(t, api, method, path, body, "Content-Type", contentType, "User-Agent", "probe/1")
	object := map[string]any{}
	testkit.NoError(t, json.Unmarshal([]byte(answer), &object), answer)
	return code, header.Values("Warning"), object
}

const (
	onJSON      = "application/json"
	jsonPatch   = "application/json-patch+json"
	mergePatch  = "application/merge-patch+json"
	strategic   = "application/strategic-merge-patch+json"
	applyPatch  = "application/apply-patch+yaml"
	configMaps  = "/api/v1/namespaces/default/configmaps"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
)

// TestV1_PatchErrors has the messages of a real API server, which were recorded from v1.37.2.
func TestV1_PatchErrors(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	send(t, api, http.MethodPost, configMaps, onJSON, `{"metadata":{"name":"a"},"data":{"x":"1"}}`)
	for _, c := range []struct {
		path, contentType, body string
		code                    int
		message                 string
	}{
		{"/a", onJSON, `{}`, 415, "415: Unsupported Media Type"},
		{"/none", jsonPatch, `x`, 400, "invalid JSON patch"},
		{"/none", jsonPatch, `[]`, 404, `configmaps "none" not found`},
		{"/a", jsonPatch, `{}`, 400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"},
		{"/a", jsonPatch, `[{"op":"test","path":"/data/x","value":"2"}]`, 422, "the server rejected our request due to an error in our request"},
		{"/a", jsonPatch, `[{"op":"remove","path":"/data/y"}]`, 422, "the server rejected our request due to an error in our request"},
		{"/a?force=true", jsonPatch, `[]`, 422, `PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch`},
		{"/a", mergePatch, `x`, 400, "invalid JSON patch"},
		{"/a?fieldValidation=Ignore", mergePatch, `"x"`, 400, "Invalid JSON Patch"},
		{"/a", mergePatch, `{"metadata":{"name":"b"}}`, 400, "the name of the object (b) does not match the name on the URL (a)"},
		{"/a", mergePatch, `{"metadata":{"namespace":"b"}}`, 400, "the namespace of the provided object does not match the namespace sent on the request"},
		{"/a", mergePatch, `{"metadata":{"resourceVersion":"1"}}`, 409, `Operation cannot be fulfilled on configmaps "a": ` +
			"the object has been modified; please apply your changes to the latest version and try again"},
		{"/a", strategic, `{"data":{"q":1}}`, 422, ` "" is invalid: patch: Invalid value: "map[data:map[q:1]]": cannot convert int64 to string`},
		{"/a?fieldValidation=Strict", strategic, `{"foo":1,"data":{"q":"1","q":"2"}}`, 422, ` "" is invalid: patch: Invalid value: ` +
			`"map[data:map[q:2] foo:1]": strict decoding error: duplicate field "data.q", unknown field "foo"`},
		{"/a", strategic, `x`, 400, "invalid JSON patch"},
		{"/a", strategic, `{"data":{"$patch":"foo"}}`, 500, "unknown patch type: foo in map: map[$patch:foo]"},
		{"/a", applyPatch, `x`, 422, `PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch`},
		{"/a?fieldManager=m", applyPatch, `x`, 400, "error decoding patch: error unmarshaling JSON: while decoding JSON: " +
			"json: cannot unmarshal string into Go value of type map[string]interface {}"},
		{"/a?fieldManager=m", applyPatch, `kind: ConfigMap`, 400, "invalid object type: /, Kind=ConfigMap"},
		{"/a?fieldManager=m", applyPatch, `{"apiVersion":"v1","kind":"ConfigMap","foo":1}`, 500,
			"failed to create typed patch object (/; /v1, Kind=ConfigMap): .foo: field not declared in schema"},
		{"/a?fieldManager=m", applyPatch, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":[]}}`, 400,
			"metadata.managedFields must be nil"},
		{"/none?fieldManager=m", applyPatch, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"none","uid":"1"}}`, 409,
			`Operation cannot be fulfilled on configmaps "none": uid mismatch: the provided object specified uid 1, and no existing object was found`},
	} {
		code, _, status := send(t, api, http.MethodPatch, configMaps+c.path, c.contentType, c.body)
		testkit.Equal(t, code, c.code, c.contentType, c.path, c.body)
		testkit.DeepEqual(t, status["message"], c.message, c.contentType, c.path, c.body)
	}
}

func TestV1_PatchWarnings(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	send(t, api, http.MethodPost, configMaps, onJSON, `{"metadata":{"name":"a"},"data":{"x":"1"}}`)
	for _, c := range []struct{ contentType, body, want string }{
		{jsonPatch, `[{"op":"add","path":"/foo","value":1},{"op":"add","path":"/data/b","value":"1","zip":1}]`,
			`299 - "json patch unknown field \"[1].zip\""|299 - "unknown field \"foo\""`},
		{mergePatch, `{"foo":1,"data":{"q":"1","q":"2"}}`, `299 - "duplicate field \"data.q\""|299 - "unknown field \"foo\""`},
		{strategic, `{"foo":1,"data":{"q":"1","q":"2"}}`, `299 - "duplicate field \"data.q\""|299 - "unknown field \"foo\""`},
		{applyPatch, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {m: \"a\", \"m\": \"b\"}\n", `299 - "line 4: key \"m\" already set in map"`},
	} {
		code, warnings, _ := send(t, api, http.MethodPatch, configMaps+"/a?fieldManager=m", c.contentType, c.body)
		testkit.Equal(t, code, http.StatusOK, c.contentType)
		testkit.Equal(t, strings.Join(warnings, "|"), c.want, c.contentType)
		code, warnings, _ = send(t, api, http.MethodPatch, configMaps+"/a?fieldManager=m&fieldValidation=Ignore", c.contentType, c.body)
		testkit.Equal(t, code, http.StatusOK, c.contentType, "with Ignore")
		testkit.Len(t, warnings, 0, c.contentType, "with Ignore")
	}
	code, warnings, _ := send(t, api, http.MethodPost, configMaps, onJSON, `{"metadata":{"name":"b"},"foo":1}`)
	testkit.Equal(t, code, http.StatusCreated, "a create with an unknown field")
	testkit.SlicesEqual(t, warnings, []string{`299 - "unknown field \"foo\""`}, "a create with an unknown field")
	code, _, status := send(t, api, http.MethodPost, configMaps+"?fieldValidation=Strict", onJSON, `{"metadata":{"name":"c"},"foo":1}`)
	const want = `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo"`
	testkit.Equal(t, code, http.StatusBadRequest, "a strict create with an unknown field")
	testkit.DeepEqual(t, status["message"], want, "a strict create with an unknown field")
}

// managers describes an object's managedFields: manager, operation, subresource and fields.
func managers(t *testing.T, object map[string]any) string {
	t.Helper()
	var lines []string
	list, _ := object["metadata"].(map[string]any)["managedFields"].([]any)
	for _, e := range list {
		entry, _ := e.(map[string]any)
		fields := testkit.Must(json.Marshal(entry["fieldsV1"]))
		line := entry["manager"].(string) + " " + entry["operation"].(string) + " "
		if sub, ok := entry["subresource"].(string); ok {
			line += sub + " "
		}
		lines = append(lines, line+string(fields))
	}
	return strings.Join(lines, "\n")
}

func TestV1_ApplySharesConflictsAndForces(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	apply := func(manager, data string) (int, map[string]any) {
		code, _, object := send(t, api, http.MethodPatch, configMaps+"/a?fieldManager="+manager, applyPatch,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":`+data+`}`)
		return code, object
	}
	code, object := apply("one", `{"k":"v","l":"w"}`)
	testkit.Equal(t, code, http.StatusCreated, "an apply of a new object", object)
	code, status := apply("two", `{"k":"x","l":"y"}`)
	testkit.Equal(t, code, http.StatusConflict)
	testkit.DeepEqual(t, status["message"], "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.k\n- .data.l")
	causes, _, err := unstructured.NestedSlice(status, "details", "causes")
	testkit.NoError(t, err)
	testkit.Len(t, causes, 2)
	_, object = apply("two", `{"k":"v"}`)
	// The real server gives the second entry no time either, so it comes first.
	testkit.Equal(t, managers(t, object), "two Apply {\"f:data\":{\"f:k\":{}}}\none Apply {\"f:data\":{\"f:k\":{},\"f:l\":{}}}", "shared fields")
	_, object = apply("two&force=true", `{"k":"x"}`)
	testkit.Equal(t, managers(t, object), "one Apply {\"f:data\":{\"f:l\":{}}}\ntwo Apply {\"f:data\":{\"f:k\":{}}}", "forced")
	_, object = apply("one", `{}`)
	testkit.Equal(t, object["data"].(map[string]any)["l"], nil, "a field that its only owner gave up")
}

func TestV1_ManagedFieldsOfUpdates(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	_, _, object := send(t, api, http.MethodPost, configMaps, onJSON, `{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"x":"1"}}`)
	testkit.Equal(t, managers(t, object), `probe Update {"f:data":{".":{},"f:x":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`, "created")
	_, _, object = send(t, api, http.MethodPatch, configMaps+"/a?fieldManager=m", mergePatch, `{"data":{"x":"2"}}`)
	testkit.Equal(t, managers(t, object), "m Update {\"f:data\":{\"f:x\":{}}}\n"+
		"probe Update {\"f:data\":{},\"f:metadata\":{\"f:labels\":{\".\":{},\"f:l\":{}}}}", "patched")
	_, _, object = send(t, api, http.MethodPatch, configMaps+"/a", mergePatch, `{"metadata":{"managedFields":[{}]}}`)
	testkit.Equal(t, managers(t, object), "", "after a reset")
}

func TestV1_AppliedTimeMovesOnlyOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		apply := func(value string) (string, any) {
			_, _, object := send(t, api, http.MethodPatch, configMaps+"/a?fieldManager=m", applyPatch,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"`+value+`"}}`)
			meta := object["metadata"].(map[string]any)
			return meta["resourceVersion"].(string), meta["managedFields"].([]any)[0].(map[string]any)["time"]
		}
		version, at := apply("v")
		time.Sleep(time.Minute)
		v, a := apply("v")
		testkit.Equal(t, v, version, "an apply without a change")
		testkit.Equal(t, a, at, "an apply without a change")
		v, a = apply("w")
		testkit.NotEqual(t, v, version, "an apply with a change")
		testkit.NotEqual(t, a, at, "an apply with a change")
	})
}

// The live quantity is "1", so the apply takes the field from itself each time.
func TestV1_AppliedTimeStaysIfTheServerUndoesTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Deployments)
		apply := func() (string, any) {
			_, _, object := send(t, api, http.MethodPatch, deployments+"/a?fieldManager=m", applyPatch,
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":`+
					`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1.0"}}}]}}}}`)
			meta := object["metadata"].(map[string]any)
			return meta["resourceVersion"].(string), meta["managedFields"].([]any)[0].(map[string]any)["time"]
		}
		version, at := apply()
		time.Sleep(time.Minute)
		v, a := apply()
		testkit.Equal(t, v, version)
		testkit.Equal(t, a, at)
	})
}

func TestV1_StrategicMergeByKey(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	send(t, api, http.MethodPost, deployments, onJSON, `{"metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},`+
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}}}}`)
	_, _, object := send(t, api, http.MethodPatch, deployments+"/a", strategic,
		`{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"k"},{"name":"c","$patch":"delete"}]}}}}`)
	data := testkit.Must(json.Marshal(object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"]))
	want := `[{"image":"k","imagePullPolicy":"Always","name":"d","resources":{},` +
		`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]`
	testkit.Equal(t, string(data), want)
}
