// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var (
	widgets    = sim.Resource{Group: "example.com", Version: "v1", Kind: "widget", Name: "widgets", Namespaced: true}
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "widget"}
)

// TestUnstructured shows every call of a handle for a kind that has no Go type.
func TestUnstructured(t *testing.T) {
	api := sim.NewServer(widgets)
	ctx, h := t.Context(), client.ForKind[*unstructured.Unstructured](newClient(t, api, client.Options{FieldOwner: "test"}), widgetKind)
	ok := func(u *unstructured.Unstructured, err error) *unstructured.Unstructured {
		t.Helper()
		testkit.NoError(t, err)
		testkit.Equal(t, u.GroupVersionKind(), widgetKind)
		return u
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "default", "name": "a"}}}
	key := name("default", "a")
	created := ok(h.Create(ctx, u))
	testkit.Equal(t, u.GetKind(), "", "the given object was changed")
	created.Object["spec"] = map[string]any{"size": int64(1)}
	updated := ok(h.Update(ctx, created))
	updated.Object["status"] = map[string]any{"ready": true}
	ok(h.UpdateStatus(ctx, updated))
	ok(h.Patch(ctx, key, types.MergePatchType, []byte(`{"spec":{"color":"red"}}`)))
	u.SetGroupVersionKind(widgetKind)
	u.Object["spec"] = map[string]any{"size": int64(2)}
	ok(h.Apply(ctx, client.UnstructuredConfiguration(u)))
	got := ok(h.GetLive(ctx, key)).Object
	if s, _, _ := unstructured.NestedMap(got, "spec"); s["size"] != int64(2) || s["color"] != "red" || got["status"] == nil {
		t.Errorf("got %v", got)
	}
	all, err := client.Collect(h.ListLive(ctx, client.ListOptions{}))
	if err != nil || len(all) != 1 || ok(all[0], nil).GetName() != "a" {
		t.Errorf("got %v, %v", all, err)
	}
	testkit.Equal(t, h.Delete(ctx, key), nil)
	testkit.ErrorSatisfies(t, testkit.Err(h.GetLive(ctx, key)), apierrors.IsNotFound)
	u.SetKind("gadget")
	_, err = h.Create(ctx, u)
	wants(t, err, "create widget default/a", "gadget of example.com/v1", "the handle is for widget of example.com/v1")
	_, err = h.Apply(ctx, client.UnstructuredConfiguration(u))
	wants(t, err, "of a gadget, not of a widget")
	_, err = h.Apply(ctx, client.UnstructuredConfiguration(nil))
	wants(t, err, "no name")
	u.SetGroupVersionKind(widgetKind)
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}})
	_, err = h.Apply(ctx, client.UnstructuredConfiguration(u))
	wants(t, err, "apply widget default/a", "managedFields", "only the fields to apply")
}

func TestMetadata(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	c, ctx := newClient(t, api, client.Options{}), t.Context()
	h := client.ForKind[*metav1.PartialObjectMetadata](c, kind)
	testkit.NoError(t, testkit.Err(client.For[*appsv1.Deployment](c).Create(ctx, web())))
	got, err := h.GetLive(ctx, name("default", "web"))
	if err != nil || got.GroupVersionKind() != kind || got.UID == "" {
		t.Fatal(got, err)
	}
	if got, err = h.EnsureFinalizer(ctx, got, "example.com/a"); err != nil || !slices.Contains(got.Finalizers, "example.com/a") || got.GroupVersionKind() != kind {
		t.Error(got, err)
	}
	all, err := client.Collect(h.ListLive(ctx, client.ListOptions{}))
	if err != nil || len(all) != 1 || all[0].GroupVersionKind() != kind || all[0].Name != "web" {
		t.Error(all, err)
	}
	desired := appsac.Deployment("web", "default").WithLabels(map[string]string{"a": "b"})
	if got, err = h.Apply(ctx, desired); err != nil || got.Labels["a"] != "b" {
		t.Error(got, err)
	}
	_, err = h.Apply(ctx, desired, client.UnlessAlready(got))
	wants(t, err, "apply Deployment default/web", "client.UnlessAlready needs a handle of whole objects")
	_, err = h.Create(ctx, got)
	wants(t, err, "create Deployment", "no whole object", "Patch or Apply")
	_, err = h.Update(ctx, got)
	wants(t, err, "update Deployment", "no whole object")
	_, err = h.UpdateStatus(ctx, got)
	wants(t, err, "update the status of Deployment", "no whole object")
	testkit.Equal(t, h.Delete(ctx, name("default", "web"), client.Propagation(metav1.DeletePropagationOrphan)), nil)
	if left := api.Object(sim.Deployments, "default", "web"); left == nil || left.GetDeletionTimestamp() == nil {
		t.Error("not marked for deletion")
	}
}

// TestWireReads: reads and deletes of built-in kinds ask for protobuf, kinds without a Go type do
// not.
func TestWireReads(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, widgets)
	c, ctx, key := newClient(t, api, client.Options{}), t.Context(), name("default", "a")
	_, _ = client.For[*corev1.ConfigMap](c).GetLive(ctx, key)
	_, _ = client.Collect(client.For[*corev1.ConfigMap](c).ListLive(ctx, client.ListOptions{}))
	_, _ = client.ForKind[*unstructured.Unstructured](c, widgetKind).GetLive(ctx, key)
	_, _ = client.Collect(client.ForKind[*unstructured.Unstructured](c, corev1.SchemeGroupVersion.WithKind("ConfigMap")).ListLive(ctx, client.ListOptions{}))
	var got []string
	for _, r := range api.Requests() {
		if r.Verb != "discover" {
			got = append(got, r.Verb+" "+r.Resource.Resource+" "+strings.Split(r.Header.Get("Accept"), ",")[0])
		}
	}
	want := []string{
		"get configmaps " + runtime.ContentTypeProtobuf, "list configmaps " + runtime.ContentTypeProtobuf,
		"get widgets " + runtime.ContentTypeJSON, "list configmaps " + runtime.ContentTypeJSON,
	}
	testkit.SlicesEqual(t, got, want)
}

// TestNotServedOrMissing: a missing object, a kind and a status that are not served are all a 404,
// and the errors differ.
func TestNotServedOrMissing(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	withStatus := false
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		switch {
		case r.Verb == "discover" && !withStatus:
			return r.Send(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","namespaced":true,"kind":"Deployment","verbs":["get"]}]}`)
		case r.Subresource == "status" && !withStatus:
			return r.FailWith(metav1.Status{
				Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: `deployments "web" not found`,
				Details: &metav1.StatusDetails{Name: "web", Group: "apps", Kind: "deployments"},
			})
		}
		return nil, nil
	})
	c, ctx := newClient(t, api, client.Options{}), t.Context()
	deployments := client.For[*appsv1.Deployment](c)
	d, err := deployments.Create(ctx, web())
	testkit.NoError(t, err)
	unserved := func(err error) {
		t.Helper()
		wants(t, err, "does not serve the status of Deployment of apps/v1", "enable the status subresource in its CRD")
		testkit.Equal(t, apierrors.IsNotFound(err), false, err)
		testkit.Equal(t, meta.IsNoMatchError(err), false, err)
	}
	_, err = deployments.UpdateStatus(ctx, d)
	unserved(err)
	_, err = deployments.ApplyStatus(ctx, appsac.Deployment("web", "default"))
	unserved(err)

	withStatus = true // the CRD is changed: the next call sees it
	_, err = deployments.UpdateStatus(ctx, d)
	testkit.Equal(t, err, nil)
	api.Remove(sim.Deployments, "default", "web")
	discoveries := func() int { return len(api.Requests()) - api.Count("", sim.Deployments) }
	_, err = client.For[*appsv1.Deployment](newClient(t, api, client.Options{})).UpdateStatus(ctx, d)
	before := discoveries()
	testkit.ErrorSatisfies(t, err, apierrors.IsNotFound, "a missing object")
	if _, err = deployments.GetLive(ctx, name("default", "web")); !apierrors.IsNotFound(err) || discoveries() != before {
		t.Errorf("a missing object: %v, after %d discoveries", err, discoveries()-before)
	}

	// A kind that is gone is no missing object either.
	api.Withdraw(sim.Deployments)
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "discover" {
			return nil, nil
		}
		return noPage(r)
	})
	for _, call := range []func() error{
		func() error { return second(deployments.GetLive(ctx, name("default", "web"))) },
		func() error {
			return second(deployments.Patch(ctx, name("default", "web"), types.MergePatchType, []byte("{}")))
		},
		func() error { return deployments.Delete(ctx, name("default", "web")) },
		func() error { return second(client.Collect(deployments.ListLive(ctx, client.ListOptions{}))) },
	} {
		err := call()
		testkit.ErrorSatisfies(t, err, meta.IsNoMatchError)
		testkit.Equal(t, apierrors.IsNotFound(err), false, err)
		testkit.ErrorSatisfies(t, testkit.Err(c.Mapping(ctx, appsv1.SchemeGroupVersion.WithKind("Deployment"))), meta.IsNoMatchError, "it is still known")
		api.Serve(sim.Deployments)
		testkit.Equal(t, deployments.Served(ctx), nil)
		api.Withdraw(sim.Deployments)
	}
}

// noPage is the API server's answer for a path that it does not serve.
func noPage(r *sim.Request) (*http.Response, error) {
	resp, err := r.Send("404 page not found\n")
	resp.StatusCode, resp.Header = http.StatusNotFound, http.Header{"Content-Type": {"text/plain"}}
	return resp, err
}

func second[T any](_ T, err error) error { return err }
