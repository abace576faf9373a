// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

// Thing is a kind with one field of each shape.
type Thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Part        `json:"spec"`
	Status ThingStatus `json:"status,omitempty"`
}

// ThingStatus is encoded although it is empty.
type ThingStatus struct {
	Phase string `json:"phase,omitempty"`
}

// Part has parts.
type Part struct {
	Name   string              `json:"name,omitempty"`
	Size   int64               `json:"size"`
	On     *bool               `json:"on,omitempty"`
	Port   *intstr.IntOrString `json:"port,omitempty"`
	Texts  []string            `json:"texts,omitempty"`
	Labels map[string]string   `json:"labels,omitempty"`
	One    *Part               `json:"one,omitempty"`
	Zero   Leaf                `json:"zero,omitzero"`
	Named  []Part              `json:"named,omitempty"`
	Leaves []Leaf              `json:"leaves,omitempty"`
	ByKey  map[string]Part     `json:"a~/key,omitempty"`
}

// Leaf has no field that identifies it.
type Leaf struct {
	Left  string `json:"left,omitempty"`
	Right string `json:"right,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (t *Thing) DeepCopyObject() runtime.Object {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	c := &Thing{}
	if err := json.Unmarshal(text, c); err != nil {
		panic(err)
	}
	return c
}

func thingKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "test.example.com", Version: "v1", Kind: "Thing"}
}

func newHooks() *webhook.Webhooks {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(thingKind(), &Thing{})
	return webhook.New(webhook.Options{
		Name: "test", Scheme: scheme, Service: types.NamespacedName{Namespace: "test-system", Name: "test"},
	})
}

// handlerOf returns the handler of webhooks without mistakes.
func handlerOf(t testing.TB, w *webhook.Webhooks) http.Handler {
	t.Helper()
	testkit.NoError(t, w.Validate())
	return w.Handler(hook.New(func(hook.Event) {}))
}

// request makes a request for a Thing. The objects are JSON, or empty.
func request(op admissionv1.Operation, object, old string) *admissionv1.AdmissionRequest {
	k := thingKind()
	return &admissionv1.AdmissionRequest{
		UID: "7c5a", Kind: metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind},
		Resource: metav1.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: "things"},
		Name:     "a", Namespace: "default", Operation: op,
		Object: extension(object), OldObject: extension(old),
	}
}

func extension(text string) (e runtime.RawExtension) {
	if text != "" {
		e.Raw = []byte(text)
	}
	return e
}

func reviewOf(t testing.TB, r *admissionv1.AdmissionRequest) []byte {
	t.Helper()
	text, err := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: r})
	testkit.NoError(t, err)
	return text
}

func newRequest(method, url, media string, body io.Reader) *http.Request {
	r := httptest.NewRequest(cmp.Or(method, http.MethodPost), url, body)
	r.Header.Set("Content-Type", cmp.Or(media, "application/json"))
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

func send(h http.Handler, method, url, media string, body io.Reader) *httptest.ResponseRecorder {
	return serve(h, newRequest(method, url, media, body))
}

// post sends a body as the API server does.
func post(h http.Handler, url string, body []byte) *httptest.ResponseRecorder {
	return send(h, "", url, "", bytes.NewReader(body))
}

// ask sends a request and returns the response, which must have status 200.
func ask(t testing.TB, h http.Handler, url string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	answer := post(h, url, reviewOf(t, r))
	if answer.Code != http.StatusOK {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	var review admissionv1.AdmissionReview
	testkit.NoError(t, json.Unmarshal(answer.Body.Bytes(), &review))
	if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || review.Response == nil || review.Response.UID != r.UID {
		t.Fatalf("the answer is %s", answer.Body)
	}
	return review.Response
}

const (
	defaultPath  = "/default.things.test.example.com"
	validatePath = "/validate.things.test.example.com"
)
