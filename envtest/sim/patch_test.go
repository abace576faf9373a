// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// send sends one request and returns the answer's code, warnings and body.
func send(t *testing.T, api *sim.Server, method, path, contentType, body string) (int, []string, map[string]any) {
	t.Helper()
	h, err := http.NewRequestWithContext(context.Background(), method, sim.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	h.Header.Set("Content-Type", contentType)
	h.Header.Set("User-Agent", "probe/1")
	resp, err := api.RoundTrip(h)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return resp.StatusCode, resp.Header.Values("Warning"), object
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
		if code != c.code || status["message"] != c.message {
			t.Errorf("%s %s %s:\n got %d %q\nwant %d %q", c.contentType, c.path, c.body, code, status["message"], c.code, c.message)
		}
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
		code, warnings, status := send(t, api, http.MethodPatch, configMaps+"/a?fieldManager=m", c.contentType, c.body)
		if got := strings.Join(warnings, "|"); code != http.StatusOK || got != c.want {
			t.Errorf("%s: got %d %s, want %s: %v", c.contentType, code, got, c.want, status)
		}
		code, warnings, _ = send(t, api, http.MethodPatch, configMaps+"/a?fieldManager=m&fieldValidation=Ignore", c.contentType, c.body)
		if code != http.StatusOK || len(warnings) > 0 {
			t.Errorf("%s with Ignore: got %d %v", c.contentType, code, warnings)
		}
	}
	code, warnings, _ := send(t, api, http.MethodPost, configMaps, onJSON, `{"metadata":{"name":"b"},"foo":1}`)
	if code != http.StatusCreated || len(warnings) != 1 || warnings[0] != `299 - "unknown field \"foo\""` {
		t.Errorf("a create with an unknown field: %d %v", code, warnings)
	}
	code, _, status := send(t, api, http.MethodPost, configMaps+"?fieldValidation=Strict", onJSON, `{"metadata":{"name":"c"},"foo":1}`)
	want := `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo"`
	if code != http.StatusBadRequest || status["message"] != want {
		t.Errorf("a strict create with an unknown field: %d %v", code, status)
	}
}

// managers describes an object's managedFields: manager, operation, subresource and fields.
func managers(t *testing.T, object map[string]any) string {
	t.Helper()
	var lines []string
	list, _ := object["metadata"].(map[string]any)["managedFields"].([]any)
	for _, e := range list {
		entry, _ := e.(map[string]any)
		fields, err := json.Marshal(entry["fieldsV1"])
		if err != nil {
			t.Fatal(err)
		}
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
	if code, object := apply("one", `{"k":"v","l":"w"}`); code != http.StatusCreated {
		t.Fatalf("an apply of a new object: %d %v", code, object)
	}
	code, status := apply("two", `{"k":"x","l":"y"}`)
	want := "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.k\n- .data.l"
	if code != http.StatusConflict || status["message"] != want || len(status["details"].(map[string]any)["causes"].([]any)) != 2 {
		t.Errorf("a conflict: %d %v", code, status)
	}
	_, object := apply("two", `{"k":"v"}`)
	// The real server gives the second entry no time either, so it comes first.
	if got, want := managers(t, object), "two Apply {\"f:data\":{\"f:k\":{}}}\none Apply {\"f:data\":{\"f:k\":{},\"f:l\":{}}}"; got != want {
		t.Errorf("shared fields:\n%s\nwant\n%s", got, want)
	}
	_, object = apply("two&force=true", `{"k":"x"}`)
	if got, want := managers(t, object), "one Apply {\"f:data\":{\"f:l\":{}}}\ntwo Apply {\"f:data\":{\"f:k\":{}}}"; got != want {
		t.Errorf("forced:\n%s\nwant\n%s", got, want)
	}
	if _, object = apply("one", `{}`); object["data"].(map[string]any)["l"] != nil {
		t.Errorf("the only owner gave up a field, which remains: %v", object)
	}
}

func TestV1_ManagedFieldsOfUpdates(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	_, _, object := send(t, api, http.MethodPost, configMaps, onJSON, `{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"x":"1"}}`)
	if got, want := managers(t, object), `probe Update {"f:data":{".":{},"f:x":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`; got != want {
		t.Errorf("created:\n%s\nwant\n%s", got, want)
	}
	_, _, object = send(t, api, http.MethodPatch, configMaps+"/a?fieldManager=m", mergePatch, `{"data":{"x":"2"}}`)
	if got, want := managers(t, object), "m Update {\"f:data\":{\"f:x\":{}}}\n"+
		"probe Update {\"f:data\":{},\"f:metadata\":{\"f:labels\":{\".\":{},\"f:l\":{}}}}"; got != want {
		t.Errorf("patched:\n%s\nwant\n%s", got, want)
	}
	_, _, object = send(t, api, http.MethodPatch, configMaps+"/a", mergePatch, `{"metadata":{"managedFields":[{}]}}`)
	if got := managers(t, object); got != "" {
		t.Errorf("after a reset: %s", got)
	}
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
		if v, a := apply("v"); v != version || a != at {
			t.Errorf("an apply without a change: version %s at %s, before %s at %s", v, a, version, at)
		}
		if v, a := apply("w"); v == version || a == at {
			t.Errorf("an apply with a change: version %s at %s", v, a)
		}
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
		if v, a := apply(); v != version || a != at {
			t.Errorf("version %s at %s, before %s at %s", v, a, version, at)
		}
	})
}

func TestV1_StrategicMergeByKey(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	send(t, api, http.MethodPost, deployments, onJSON, `{"metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},`+
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}}}}`)
	_, _, object := send(t, api, http.MethodPatch, deployments+"/a", strategic,
		`{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"k"},{"name":"c","$patch":"delete"}]}}}}`)
	data, err := json.Marshal(object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"])
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"image":"k","imagePullPolicy":"Always","name":"d","resources":{},` +
		`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
}
