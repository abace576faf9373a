// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// admitter answers AdmissionReviews by a func.
type admitter func(r *http.Request, in *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

func (f admitter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = f(r, review.Request)
	review.Response.UID, review.Request = review.Request.UID, nil
	_ = json.NewEncoder(w).Encode(review)
}

func allowed() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

// validating returns a configuration of one webhook for all writes of ConfigMaps.
func validating(change ...func(*admissionregistrationv1.ValidatingWebhook)) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	h := admissionregistrationv1.ValidatingWebhook{
		Name: "check.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "operator"},
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}
	for _, f := range change {
		f(&h)
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "check"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{h},
	}
}

// hookedServer returns a server whose webhooks are answered by h, and a client.
func hookedServer(t *testing.T, h http.Handler) (*sim.Server, coreclient.CoreV1Interface) {
	t.Helper()
	server := sim.New(t, scheme.Scheme, validating())
	server.UseWebhooks(h)
	return server, testkit.Must(coreclient.NewForConfig(server.Config()))
}

// A webhook that reads and writes the server shows that it runs without the server's lock: else the
// bubble deadlocks.
func TestV5_AWebhookMayUseTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coreclient.CoreV1Interface
		var saw []string
		_, c = hookedServer(t, admitter(func(r *http.Request, in *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			saw = append(saw, r.Host+r.URL.Path+" "+string(in.Operation)+" "+in.Name)
			_, err := c.Secrets("default").Create(r.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: in.Name}}, metav1.CreateOptions{})
			testkit.Equal(t, err, nil)
			return allowed()
		}))
		testkit.NoError(t, testkit.Err(c.ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})))
		testkit.NoError(t, testkit.Err(c.Secrets("default").Get(t.Context(), "a", metav1.GetOptions{})))
		testkit.SlicesEqual(t, saw, []string{"operator.default.svc:443/ CREATE a"})
	})
}

func TestV5_AHangingWebhookCostsItsTimeout(t *testing.T) {
	for policy, fails := range map[admissionregistrationv1.FailurePolicyType]bool{"Fail": true, "Ignore": false} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := sim.New(t, scheme.Scheme, validating(func(h *admissionregistrationv1.ValidatingWebhook) {
					h.FailurePolicy, h.TimeoutSeconds = &policy, new(int32)
					*h.TimeoutSeconds = 7
				}))
				server.UseWebhooks(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
				c := testkit.Must(coreclient.NewForConfig(server.Config()))
				start := time.Now()
				_, err := c.ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
				testkit.Equal(t, time.Since(start), 7*time.Second)
				if fails != (err != nil) || fails && !strings.Contains(err.Error(), `failed calling webhook "check.example.com": failed to call webhook: `+
					`Post "https://operator.default.svc:443/?timeout=7s": context deadline exceeded`) {
					t.Errorf("with failurePolicy %s: %v", policy, err)
				}
			})
		})
	}
}

// The first answer is about an object that another client changes meanwhile. So the webhook is
// asked again.
func TestV5_AWebhookApprovesWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server *sim.Server
		var calls int
		var last corev1.ConfigMap
		server, c := hookedServer(t, admitter(func(_ *http.Request, in *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			if calls++; calls == 1 {
				server.Put(sim.ConfigMaps, configMap("a", "theirs"))
			}
			testkit.Equal(t, json.Unmarshal(in.Object.Raw, &last), nil)
			return allowed()
		}))
		server.Put(sim.ConfigMaps, configMap("a"))
		patch := []byte(`{"data":{"ours":"x"}}`)
		stored := testkit.Must(c.ConfigMaps("default").Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}))
		testkit.Equal(t, calls, 2)
		testkit.Len(t, last.Data, 2)
		testkit.Len(t, stored.Data, 2)
	})
}

func TestV5_AWebhookSeesTheIdentityOfANewObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen corev1.ConfigMap
		var calls int
		server, c := hookedServer(t, admitter(func(_ *http.Request, in *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			time.Sleep(3 * time.Second) // the time of the write does not matter
			calls++
			testkit.Equal(t, json.Unmarshal(in.Object.Raw, &seen), nil)
			return allowed()
		}))
		m := configMap("")
		m.GenerateName = "a-"
		stored := testkit.Must(c.ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}))
		testkit.Equal(t, calls, 1)
		testkit.Equal(t, seen.UID, stored.UID)
		testkit.Equal(t, seen.Name, stored.Name)
		testkit.Equal(t, seen.CreationTimestamp.Equal(&stored.CreationTimestamp), true)
		testkit.Equal(t, server.Stored(sim.ConfigMaps), 1)
	})
}

// A collection is deleted up to the first object that a webhook does not let go.
func TestV1_AWebhookStopsTheDeletionOfACollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := hookedServer(t, admitter(func(_ *http.Request, in *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var old corev1.ConfigMap
			testkit.Equal(t, json.Unmarshal(in.OldObject.Raw, &old), nil)
			return &admissionv1.AdmissionResponse{Allowed: old.Name != "b"}
		}))
		for _, name := range []string{"a", "b", "c"} {
			server.Put(sim.ConfigMaps, configMap(name))
		}
		err := c.ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		testkit.ErrorContains(t, err, `admission webhook "check.example.com" denied the request without explanation`)
		testkit.Equal(t, namesIn(testkit.Must(c.ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))), "b c ")
	})
}

func TestV2_MatchConditionsAreRefused(t *testing.T) {
	server := sim.New(t, scheme.Scheme, validating(func(h *admissionregistrationv1.ValidatingWebhook) {
		h.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "true"}}
	}))
	c := testkit.Must(coreclient.NewForConfig(server.Config()))
	_, err := c.ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	if status := apierrors.APIStatus(nil); err == nil || !asStatus(err, &status) || status.Status().Code != http.StatusNotImplemented ||
		!strings.Contains(err.Error(), `POST /api/v1/namespaces/default/configmaps: webhook "check.example.com" has matchConditions`) {
		t.Errorf("a webhook with matchConditions: %v", err)
	}
}

// Without UseWebhooks, a service cannot be reached, and in a bubble neither can a url.
func TestV5_AnUnreachableWebhookNamesTheRemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.New(t, scheme.Scheme, validating())
		c := testkit.Must(coreclient.NewForConfig(server.Config()))
		_, err := c.ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
		testkit.ErrorContains(t, err, "give the webhook's handler to Server.UseWebhooks", "a webhook in a bubble")
	})
	server := sim.New(t, scheme.Scheme, validating())
	c := testkit.Must(coreclient.NewForConfig(server.Config()))
	_, err := c.ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	testkit.ErrorContains(t, err, "service default/operator has no endpoints", "a service")
}

func asStatus(err error, into *apierrors.APIStatus) bool {
	status, ok := err.(apierrors.APIStatus)
	*into = status
	return ok
}

const gizmos = `{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gizmos.example.com"},
	"spec": {
		"group": "example.com", "scope": "Namespaced", "names": {"kind": "Gizmo", "plural": "gizmos", "singular": "gizmo", "listKind": "GizmoList"},
		"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://operator.test/convert"}}},
		"versions": [
			{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
			{"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}
		]
	}
}`

// converter moves spec.size of v1 to spec.width of v2, and back.
type converter struct {
	objects []int // of each review
	fail    bool
}

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID               string
			DesiredAPIVersion string
			Objects           []map[string]any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || c.fail {
		http.Error(w, fmt.Sprint("no: ", err), http.StatusInternalServerError)
		return
	}
	c.objects = append(c.objects, len(review.Request.Objects))
	for _, o := range review.Request.Objects {
		spec, _ := o["spec"].(map[string]any)
		from, to := "size", "width"
		if o["apiVersion"] == "example.com/v2" {
			from, to = to, from
		}
		o["apiVersion"], spec[to] = review.Request.DesiredAPIVersion, spec[from]
		delete(spec, from)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": map[string]any{
		"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects,
	}})
}

func gizmo(version, name, field string, value int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/" + version, "kind": "Gizmo", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{field: value},
	}}
}

// convertedServer returns clients of both versions.
func convertedServer(t *testing.T, c *converter, objects ...*unstructured.Unstructured) (v1, v2 dynamic.ResourceInterface) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	testkit.NoError(t, crd.UnmarshalJSON([]byte(gizmos)))
	server := sim.New(t, scheme.Scheme, crd)
	server.UseWebhooks(c)
	client := testkit.Must(dynamic.NewForConfig(server.Config()))
	of := func(version string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "gizmos"}).Namespace("default")
	}
	for _, o := range objects {
		testkit.NoError(t, testkit.Err(of("v1").Create(t.Context(), o, metav1.CreateOptions{})))
	}
	return of("v1"), of("v2")
}

func widthOf(u *unstructured.Unstructured) any {
	width, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "width")
	return width
}

// A list converts its objects in one review, and only once.
func TestV1_ConversionWebhook_Lists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &converter{}
		_, v2 := convertedServer(t, c, gizmo("v1", "a", "size", 1), gizmo("v1", "b", "size", 2))
		for range 2 {
			list := testkit.Must(v2.List(t.Context(), metav1.ListOptions{}))
			if len(list.Items) != 2 || widthOf(&list.Items[0]) != int64(1) || widthOf(&list.Items[1]) != int64(2) {
				t.Fatalf("the list has %v", list.Items)
			}
		}
		testkit.SlicesEqual(t, c.objects, []int{2})
	})
}

func TestV1_ConversionWebhook_Watches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &converter{}
		v1, v2 := convertedServer(t, c)
		w := testkit.Must(v2.Watch(t.Context(), metav1.ListOptions{}))
		defer w.Stop()
		testkit.NoError(t, testkit.Err(v1.Create(t.Context(), gizmo("v1", "a", "size", 1), metav1.CreateOptions{})))
		patch := []byte(`{"spec":{"size":5}}`)
		testkit.NoError(t, testkit.Err(v1.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})))
		testkit.NoError(t, v2.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		for _, want := range []struct {
			kind  watch.EventType
			width int64
		}{{watch.Added, 1}, {watch.Modified, 5}, {watch.Deleted, 5}} {
			e := <-w.ResultChan()
			if u, ok := e.Object.(*unstructured.Unstructured); e.Type != want.kind || !ok || widthOf(u) != want.width || u.GetAPIVersion() != "example.com/v2" {
				t.Errorf("the watch sent %s %v, want %s with width %d", e.Type, e.Object, want.kind, want.width)
			}
		}
		c.fail = true
		testkit.NoError(t, testkit.Err(v1.Create(t.Context(), gizmo("v1", "b", "size", 1), metav1.CreateOptions{})))
		e := <-w.ResultChan()
		testkit.Equal(t, e.Type, watch.Error)
		testkit.Contains(t, apierrors.FromObject(e.Object).Error(), "conversion webhook for example.com/v1, Kind=Gizmo failed")
		c.fail = false
	})
}

// Reads of one object call the webhook each time, so a test sees that it is broken.
func TestV1_ConversionWebhook_GetNeedsTheWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &converter{}
		v1, v2 := convertedServer(t, c, gizmo("v1", "a", "size", 1))
		testkit.DeepEqual(t, widthOf(testkit.Must(v2.Get(t.Context(), "a", metav1.GetOptions{}))), int64(1))
		c.fail = true
		_, err := v2.Get(t.Context(), "a", metav1.GetOptions{})
		testkit.ErrorContains(t, err, "conversion webhook for example.com/v1, Kind=Gizmo failed", "a get with a broken webhook")
		testkit.NoError(t, testkit.Err(v1.Get(t.Context(), "a", metav1.GetOptions{})))
	})
}
