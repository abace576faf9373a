// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhooks is the server of the webhooks in scripts. Both API servers call it over HTTPS.
var webhooks = sync.OnceValue(func() *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(answerWebhook))
	s.Config.ErrorLog = nil
	s.StartTLS()
	return s
})

func closeWebhooks() error {
	webhooks().Close()
	return nil
}

// hookPlaceholder matches the placeholders of webhooks:
//
//	{hook PATH}          the fields of an admission webhook for the script's namespace
//	{rule OPERATION of}  a rule for a resource in all groups and versions
//	{probe}              an admission webhook that denies objects with the name "probe"
//	{client PATH}        a clientConfig
var hookPlaceholder = regexp.MustCompile(`\{(hook|rule|probe|client)(?: ([^}]*))?\}`)

func expandHooks(namespace, text string) string {
	return hookPlaceholder.ReplaceAllStringFunc(text, func(m string) string {
		field, of, _ := strings.Cut(strings.Trim(m, "{}"), " ")
		switch field {
		case "rule":
			operation, resource, _ := strings.Cut(of, " ")
			return fmt.Sprintf(`{"operations":[%q],"apiGroups":["*"],"apiVersions":["*"],"resources":[%q]}`, operation, resource)
		case "probe":
			return fmt.Sprintf(`{"name":"probe.example.com",%s,"rules":[%s]}`,
				expandHooks(namespace, "{hook probe}"), expandHooks(namespace, "{rule CREATE configmaps}"))
		}
		s := webhooks()
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		client := fmt.Sprintf(`{"url":"%s/%s","caBundle":%q}`, s.URL, of, base64.StdEncoding.EncodeToString(ca))
		if field == "client" {
			return client
		}
		return fmt.Sprintf(`"clientConfig":%s,"sideEffects":"None","admissionReviewVersions":["v1"],`+
			`"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}`, client, namespace)
	})
}

// arrange does a step without a response to compare.
func (s *side) arrange(ctx context.Context, one step) error {
	switch one.method {
	case "HOOKED":
		return s.hooked(ctx, one)
	case "SETUP":
		return s.setup(ctx, one)
	}
	return s.served(ctx, one)
}

// hooked repeats a dry run of a creation until it fails: the API server uses a configuration with
// {probe}.
func (s *side) hooked(ctx context.Context, one step) error {
	return s.repeat(ctx, step{method: http.MethodPost, target: one.target + "?dryRun=All", body: one.body},
		func(code int) bool { return code >= http.StatusBadRequest })
}

// setup creates an object.
func (s *side) setup(ctx context.Context, one step) error {
	one.method = http.MethodPost
	resp, err := s.request(ctx, one)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// served repeats a read until it succeeds.
func (s *side) served(ctx context.Context, one step) error {
	return s.repeat(ctx, step{method: http.MethodGet, target: one.target}, func(code int) bool { return code == http.StatusOK })
}

func (s *side) repeat(ctx context.Context, one step, done func(code int) bool) error {
	for {
		resp, err := s.request(ctx, one)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || done(resp.StatusCode) {
			return err
		}
	}
}

// answerWebhook answers by the first element of the path.
func answerWebhook(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if path[0] == "convert" {
		answerConversion(w, path[1:], body)
		return
	}
	if path[0] == "code" {
		code, _ := strconv.Atoi(path[1])
		w.WriteHeader(code)
		fmt.Fprint(w, strings.Join(path[2:], " "))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(admit(path, body))
}

// admit returns an AdmissionReview.
func admit(path []string, body map[string]any) map[string]any {
	request, _ := body["request"].(map[string]any)
	uid, _ := request["uid"].(string)
	answer := map[string]any{"uid": uid, "allowed": true}
	review := map[string]any{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": answer}
	switch path[0] {
	case "probe":
		answer["allowed"] = request["name"] != "probe"
	case "deny":
		answer["allowed"] = false
		answer["status"] = denial(path[1:])
	case "echo":
		delete(request, "uid")
		delete(request, "userInfo")
		text, _ := json.Marshal(request)
		answer["allowed"], answer["status"] = false, &metav1.Status{Message: string(text)}
	case "warn":
		answer["warnings"] = path[1:]
	case "patch":
		answer["patchType"], answer["patch"] = admissionv1.PatchTypeJSONPatch, []byte(patches[path[1]])
	case "count":
		object, _ := request["object"].(map[string]any)
		data, _ := object["data"].(map[string]any)
		calls, _ := data["calls"].(string)
		answer["patchType"] = admissionv1.PatchTypeJSONPatch
		answer["patch"] = fmt.Appendf(nil, `[{"op":"add","path":"/data/calls","value":%q}]`, calls+path[1])
	case "uid":
		answer["uid"] = "other"
	case "empty":
		delete(review, "response")
	case "version":
		review["apiVersion"] = "admission.k8s.io/v1beta1"
	case "untyped":
		delete(review, "kind")
	case "untypedpatch":
		answer["patch"] = []byte(patches["label"])
	}
	return review
}

// denial is the status in /deny/CODE/MESSAGE/REASON.
func denial(path []string) *metav1.Status {
	if len(path) == 0 {
		return nil
	}
	status := &metav1.Status{}
	code, _ := strconv.Atoi(path[0])
	status.Code = int32(code) //nolint:gosec // an HTTP code
	if len(path) > 1 {
		status.Message = path[1]
	}
	if len(path) > 2 {
		status.Reason = metav1.StatusReason(path[2])
		status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "data.x", Message: "bad", Type: metav1.CauseTypeFieldValueInvalid}}}
	}
	return status
}

// patches are the JSON patches of /patch/NAME.
var patches = map[string]string{
	"label":   `[{"op":"add","path":"/metadata/labels","value":{"patched":"yes"}}]`,
	"data":    `[{"op":"add","path":"/data","value":{"from":"webhook"}}]`,
	"invalid": `[{"op":"add","path":"/data","value":{"not a key!":"x"}}]`,
	"broken":  `{"op":"add"}`,
	"missing": `[{"op":"remove","path":"/data/missing"}]`,
	"type":    `[{"op":"add","path":"/data","value":3}]`,
	"spec":    `[{"op":"add","path":"/spec/from","value":"webhook"}]`,
	"scale":   `[{"op":"replace","path":"/spec/replicas","value":7}]`,
	"none":    `[]`,
}

// answerConversion converts spec.size of version v1 to spec.width of v2, and back.
func answerConversion(w http.ResponseWriter, path []string, body map[string]any) {
	request, _ := body["request"].(map[string]any)
	version, _ := request["desiredAPIVersion"].(string)
	objects, _ := request["objects"].([]any)
	from, to := "size", "width"
	if strings.HasSuffix(version, "/v1") {
		from, to = to, from
	}
	converted := []any{}
	for _, o := range objects {
		o, _ := o.(map[string]any)
		o["apiVersion"] = version
		spec, _ := o["spec"].(map[string]any)
		metadata, _ := o["metadata"].(map[string]any)
		if spec != nil && spec[from] != nil {
			spec = maps.Clone(spec)
			spec[to] = spec[from]
			delete(spec, from)
			o["spec"] = spec
		}
		switch labels, _ := metadata["labels"].(map[string]any); {
		case len(path) > 0 && path[0] == "name":
			metadata["name"] = "other"
		case len(path) > 0 && path[0] == "kind":
			o["kind"] = "Other"
		case len(path) > 0 && path[0] == "same":
			o["apiVersion"] = "example.com/v9"
		case len(path) > 0 && path[0] == "labels":
			metadata["labels"] = map[string]any{"converted": "to-" + version[strings.LastIndex(version, "/")+1:]}
			metadata["finalizers"] = []any{"ignored.example.com/x"}
		case labels["fail"] != nil:
			path = []string{"fail"}
		}
		converted = append(converted, o)
	}
	result := map[string]any{"status": "Success"}
	if len(path) > 0 && path[0] == "fail" {
		result, converted = map[string]any{"status": "Failure", "message": "cannot convert"}, nil
	}
	if len(path) > 0 && path[0] == "few" {
		converted = []any{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": body["kind"], "apiVersion": body["apiVersion"],
		"response": map[string]any{"uid": request["uid"], "convertedObjects": converted, "result": result},
	})
}
