// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/manifests"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// operator answers the webhooks of testdata/webhooks.yaml.
func operator(w http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request, _ := review["request"].(map[string]any)
	response := map[string]any{"uid": request["uid"], "allowed": r.URL.Path != "/check", "status": map[string]any{"message": "checked"}}
	switch r.URL.Path {
	case "/default":
		response["patchType"], response["patch"] = "JSONPatch", []byte(`[{"op":"add","path":"/data","value":{"from":"webhook"}}]`)
	case "/convert":
		objects, _ := request["objects"].([]any)
		for _, o := range objects {
			object, _ := o.(map[string]any)
			object["apiVersion"], object["convertedTo"] = request["desiredAPIVersion"], request["desiredAPIVersion"]
		}
		response = map[string]any{"uid": request["uid"], "convertedObjects": objects, "result": map[string]any{"status": "Success"}}
	}
	delete(review, "request")
	review["response"] = response
	_ = json.NewEncoder(w).Encode(review)
}

// serveWebhooks serves the webhooks over HTTPS.
func serveWebhooks(t *testing.T) Webhooks {
	t.Helper()
	certificate, ca, err := ServingCertificate()
	testkit.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(operator))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	s.StartTLS()
	t.Cleanup(s.Close)
	return Webhooks{Paths: []string{"testdata/webhooks.yaml"}, Address: s.Listener.Addr().String(), CABundle: ca}
}

// testWebhooks installs, uses and removes the webhooks of testdata/webhooks.yaml. Nothing waits
// between the steps.
func testWebhooks(ctx context.Context, t *testing.T, cfg *rest.Config, w Webhooks) {
	t.Helper()
	remove, err := InstallWebhooks(ctx, cfg, w)
	testkit.NoError(t, err)
	client, err := dynamic.NewForConfig(cfg)
	testkit.NoError(t, err)
	maps := client.Resource(configMaps).Namespace("default")
	labeled := func(label string) *unstructured.Unstructured {
		o := object("v1", "ConfigMap", "webhooks-"+label)
		o.SetLabels(map[string]string{"webhooks": label})
		return o
	}
	testkit.ErrorContains(t, testkit.Err(maps.Create(ctx, labeled("checked"), metav1.CreateOptions{})), "denied the request: checked", "the validating webhook is not used")
	defaulted := create(ctx, t, maps, labeled("defaulted"))
	data, _, _ := unstructured.NestedString(defaulted.Object, "data", "from")
	testkit.Equal(t, data, "webhook", "the mutating webhook is not used", defaulted.Object)
	dials := schema.GroupVersionResource{Group: "envtest.setpoint.dev", Version: "v1", Resource: "dials"}
	create(ctx, t, client.Resource(dials).Namespace("default"), object("envtest.setpoint.dev/v1", "Dial", "a"))
	got, err := client.Resource(dials.GroupResource().WithVersion("v2")).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
	testkit.NoError(t, err)
	to, _, _ := unstructured.NestedString(got.Object, "convertedTo")
	testkit.Equal(t, to, "envtest.setpoint.dev/v2", "the conversion webhook is not used", got.Object)
	testkit.NoError(t, remove(ctx))
	create(ctx, t, maps, labeled("checked"))
	testRemoved(ctx, t, client)
}

func testRemoved(ctx context.Context, t *testing.T, client dynamic.Interface) {
	t.Helper()
	maps := client.Resource(configMaps).Namespace("default")
	for _, name := range []string{"webhooks-checked", "webhooks-defaulted"} {
		testkit.Equal(t, maps.Delete(ctx, name, metav1.DeleteOptions{}), nil)
	}
	testkit.ErrorSatisfies(t, testkit.Err(client.Resource(crds).Get(ctx, "dials.envtest.setpoint.dev", metav1.GetOptions{})), apierrors.IsNotFound, "the CustomResourceDefinition stays")
	for _, of := range configurations {
		list, err := client.Resource(of).List(ctx, metav1.ListOptions{})
		testkit.NoError(t, err, of.Resource)
		testkit.Len(t, list.Items, 0, of.Resource)
	}
}

// testConversionReplaced installs webhooks when another client has applied the
// CustomResourceDefinition, with a service. Removing them keeps it.
func testConversionReplaced(ctx context.Context, t *testing.T, cfg *rest.Config, w Webhooks) {
	t.Helper()
	client, err := dynamic.NewForConfig(cfg)
	testkit.NoError(t, err)
	all, err := manifests.Read(w.Paths...)
	testkit.NoError(t, err)
	for _, m := range all {
		if m.Object.GetKind() == "CustomResourceDefinition" {
			testkit.NoError(t, testkit.Err(client.Resource(crds).Apply(ctx, m.Object.GetName(), m.Object, metav1.ApplyOptions{FieldManager: "kubectl"})))
		}
	}
	remove, err := InstallWebhooks(ctx, cfg, w)
	testkit.NoError(t, err)
	testkit.NoError(t, remove(ctx))
	stays, err := client.Resource(crds).Get(ctx, "dials.envtest.setpoint.dev", metav1.GetOptions{})
	testkit.NoError(t, err)
	to, _, _ := unstructured.NestedMap(stays.Object, "spec", "conversion", "webhook", "clientConfig")
	testkit.DeepEqual(t, to["service"], nil)
	testkit.DeepEqual(t, to["url"], "https://"+w.Address+"/convert")
	testkit.NoError(t, client.Resource(crds).Delete(ctx, stays.GetName(), metav1.DeleteOptions{}))
}

func TestInstallWebhooks_ReplacesAConversion(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, c.Stop(), nil)
	}()
	testConversionReplaced(t.Context(), t, c.Config(), serveWebhooks(t))
}

func TestInstallWebhooks_ReplacesAConversion_InTheSim(t *testing.T) {
	testConversionReplaced(t.Context(), t, sim.New(t, scheme.Scheme).Config(), serveWebhooks(t))
}

// testConversionAlone installs what webhook.Manifests returns, a CustomResourceDefinition with only
// a conversion, over the whole one of a field manager. It changes nothing else.
func testConversionAlone(ctx context.Context, t *testing.T, cfg *rest.Config, w Webhooks, owner string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cfg)
	testkit.NoError(t, err)
	all, err := manifests.Read(w.Paths...)
	testkit.NoError(t, err)
	var whole, part *unstructured.Unstructured
	for _, m := range all {
		if m.Object.GetKind() == "CustomResourceDefinition" {
			whole, part = m.Object, m.Object.DeepCopy()
		}
	}
	conversion, _, _ := unstructured.NestedMap(whole.Object, "spec", "conversion")
	part.Object["spec"] = map[string]any{"conversion": conversion}
	unstructured.RemoveNestedField(whole.Object, "spec", "conversion", "webhook")
	whole.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
	w.Paths, w.Objects = nil, []runtime.Object{part}

	testkit.ErrorContains(t, testkit.Err(InstallWebhooks(ctx, cfg, w)), "is not installed; install the whole one first", "without the whole one")
	before, err := client.Resource(crds).Apply(ctx, whole.GetName(), whole, metav1.ApplyOptions{FieldManager: owner})
	testkit.NoError(t, err)
	for i := range 3 {
		remove, err := InstallWebhooks(ctx, cfg, w)
		testkit.NoError(t, err, fmt.Sprintf("time %d", i))
		testkit.NoError(t, remove(ctx))
	}
	after, err := client.Resource(crds).Get(ctx, whole.GetName(), metav1.GetOptions{})
	testkit.NoError(t, err)
	to, _, _ := unstructured.NestedString(after.Object, "spec", "conversion", "webhook", "clientConfig", "url")
	testkit.Equal(t, to, "https://"+w.Address+"/convert", "the conversion calls")
	for _, u := range []*unstructured.Unstructured{before, after} {
		unstructured.RemoveNestedField(u.Object, "spec", "conversion")
	}
	testkit.Equal(t, equality.Semantic.DeepEqual(before.Object["spec"], after.Object["spec"]), true, before.Object["spec"], after.Object["spec"])
	testkit.NoError(t, client.Resource(crds).Delete(ctx, whole.GetName(), metav1.DeleteOptions{}))
}

// TestInstallWebhooks_AConversionAlone: also over a CustomResourceDefinition of Options.CRDs, which
// has the same field manager.
func TestInstallWebhooks_AConversionAlone(t *testing.T) {
	for _, owner := range []string{fieldManager, "kubectl"} {
		t.Run(owner, func(t *testing.T) {
			c, err := Start(t.Context(), Options{})
			testkit.NoError(t, err)
			defer func() {
				testkit.Equal(t, c.Stop(), nil)
			}()
			testConversionAlone(t.Context(), t, c.Config(), serveWebhooks(t), owner)
		})
		t.Run(owner+", in the sim", func(t *testing.T) {
			testConversionAlone(t.Context(), t, sim.New(t, scheme.Scheme).Config(), serveWebhooks(t), owner)
		})
	}
}

// E6 on the real API server.
func TestE6_WebhooksAreUsedAtOnce(t *testing.T) {
	c := sharedCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	testWebhooks(ctx, t, c.Config(), serveWebhooks(t))
}

func TestE6_WebhooksAreUsedAtOnce_InTheSim(t *testing.T) {
	testWebhooks(t.Context(), t, sim.New(t, scheme.Scheme).Config(), serveWebhooks(t))
}

// In a bubble there are no sockets, so the address is never dialed.
func TestE6_WebhooksAreUsedAtOnce_InABubble(t *testing.T) {
	_, ca, err := ServingCertificate()
	testkit.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		server := sim.New(t, scheme.Scheme)
		server.UseWebhooks(http.HandlerFunc(operator))
		testWebhooks(t.Context(), t, server.Config(), Webhooks{Paths: []string{"testdata/webhooks.yaml"}, Address: "operator.test:443", CABundle: ca})
	})
}

// TestE6_InstallWebhooksProbesTheAPIServer: a real API server that is quick would hide a missing
// probe from the tests above.
func TestE6_InstallWebhooksProbesTheAPIServer(t *testing.T) {
	server := sim.New(t, scheme.Scheme)
	testkit.NoError(t, testkit.Err(InstallWebhooks(t.Context(), server.Config(), serveWebhooks(t))))
	testkit.NotEqual(t, server.Count("create", sim.Leases), 0, "InstallWebhooks has not tried whether the API server calls webhooks")
}

func TestInstallWebhooks_InvalidInput(t *testing.T) {
	_, ca, err := ServingCertificate("operator.test", "192.0.2.1")
	testkit.NoError(t, err)
	cfg := sim.New(t, scheme.Scheme).Config()
	for _, c := range []struct {
		w    Webhooks
		want string
	}{
		{Webhooks{CABundle: ca}, `Webhooks.Address is "": it must be the host and port`},
		{Webhooks{Address: "127.0.0.1:0", CABundle: ca}, `Webhooks.Address is "127.0.0.1:0"`},
		{Webhooks{Address: "127.0.0.1:9443", CABundle: []byte("x")}, "Webhooks.CABundle has no certificate in PEM"},
		{
			Webhooks{Address: "127.0.0.1:9443", CABundle: ca, Paths: []string{"testdata/roles.yaml"}},
			"is no webhook configuration and no CustomResourceDefinition; use Apply for it",
		},
		{Webhooks{Address: "127.0.0.1:9443", CABundle: ca, Objects: []runtime.Object{nil}}, "Webhooks.Objects[0]: it is nil"},
		{Webhooks{Address: "127.0.0.1:9443", CABundle: ca, Objects: []runtime.Object{&corev1.ConfigMap{}}}, "Webhooks.Objects[0]: it needs a name"},
	} {
		testkit.ErrorContains(t, testkit.Err(InstallWebhooks(t.Context(), cfg, c.w)), c.want, fmt.Sprintf("InstallWebhooks(%+v)", c.w))
	}
}
