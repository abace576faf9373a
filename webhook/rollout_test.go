// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/webhook"
)

const shopCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.shops.example.com}
spec:
  group: shops.example.com
  scope: Namespaced
  names: {kind: Shop, listKind: ShopList, plural: shops, singular: shop}
  versions:
  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// shopList is the list of shops for the manager's cache.
type shopList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Shop `json:"items"`
}

func (l *shopList) DeepCopyObject() runtime.Object { return copyOf(l) }

// realServer starts a control plane with the CRD of shops.
func realServer(t *testing.T) (context.Context, *client.Client) {
	t.Helper()
	return realServerWith(t, shopCRD)
}

func realServerWith(t *testing.T, crd string) (context.Context, *client.Client) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	file := filepath.Join(t.TempDir(), "shops.yaml")
	testkit.NoError(t, os.WriteFile(file, []byte(crd), 0o600))
	cluster, err := envtest.Start(ctx, envtest.Options{CRDs: []string{file}})
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = cluster.Stop() })
	known := shops()
	known.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "ShopList"}, &shopList{})
	metav1.AddToGroupVersion(known, schema.GroupVersion{Group: group, Version: "v1"})
	testkit.NoError(t, scheme.AddToScheme(known))
	c, err := client.New(cluster.Config(), client.Options{Scheme: known})
	testkit.NoError(t, err)
	t.Cleanup(c.Close)
	return ctx, c
}

// installConversion applies the manifest of the conversion, with a CA.
func installConversion(ctx context.Context, t *testing.T, c *client.Client, url string, ca []byte) {
	t.Helper()
	w := webhook.New(webhook.Options{Name: "shop-operator", Scheme: shops(), URL: url})
	webhook.AddConversion(w, fromAlpha, toAlpha)
	webhook.AddConversion(w, fromBeta, toBeta)
	objects, err := w.Manifests()
	testkit.NoError(t, err)
	bundle := base64.StdEncoding.EncodeToString(ca)
	testkit.NoError(t, unstructured.SetNestedField(objects[0].Object, bundle, "spec", "conversion", "webhook", "clientConfig", "caBundle"))
	h := client.ForKind[*unstructured.Unstructured](c, objects[0].GroupVersionKind())
	testkit.NoError(t, testkit.Err(h.Apply(ctx, client.UnstructuredConfiguration(objects[0]))))
}

func shopsOf(c *client.Client, version string) *client.Handle[*unstructured.Unstructured] {
	return client.ForKind[*unstructured.Unstructured](c, schema.GroupVersionKind{Group: group, Version: version, Kind: "Shop"})
}

// eventually repeats a request until it succeeds: the API server needs a moment for a new CRD.
func eventually(ctx context.Context, t *testing.T, do func() error) {
	t.Helper()
	for {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// TestA5_OnTheRealServer: kube-apiserver accepts the manifest, and each version of the objects,
// also in lists. Its message about a failure names the object.
func TestA5_OnTheRealServer(t *testing.T) {
	ctx, c := realServer(t)
	served := httptest.NewTLSServer(converting().Handler(hook.New(func(hook.Event) {})))
	defer served.Close()
	installConversion(ctx, t, c, served.URL, pemOf(served))
	for i := range 30 {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"address": fmt.Sprintf("shop.test:%d", 1000+i)}}}
		u.SetNamespace("default")
		u.SetName(fmt.Sprintf("shop-%02d", i))
		u.SetLabels(map[string]string{"size": "l"})
		u.SetFinalizers([]string{"shops.example.com/keep"})
		testkit.NoError(t, testkit.Err(shopsOf(c, "v1alpha1").Create(ctx, u)))
	}
	for _, version := range []string{"v1", "v1beta1"} {
		eventually(ctx, t, func() error {
			u, err := shopsOf(c, version).GetLive(ctx, types.NamespacedName{Namespace: "default", Name: "shop-00"})
			if err != nil {
				return err
			}
			if host, _, _ := unstructured.NestedString(u.Object, "spec", "host"); host != "shop.test" {
				return fmt.Errorf("%s is not converted yet: %v", version, u.Object)
			}
			return nil
		})
		i := 0
		for u, err := range shopsOf(c, version).ListLive(ctx, client.ListOptions{Namespace: "default"}) {
			testkit.NoError(t, err)
			port, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "port")
			if fmt.Sprint(port) != fmt.Sprint(1000+i) || u.GetName() != fmt.Sprintf("shop-%02d", i) || u.GetLabels()["size"] != "l" || len(u.GetFinalizers()) != 1 {
				t.Errorf("%s: shop %d is %v", version, i, u.Object)
			}
			i++
		}
		testkit.Equal(t, i, 30, version, "shops")
	}
	bad := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"address": "nowhere"}}}
	bad.SetNamespace("default")
	bad.SetName("bad")
	testkit.NoError(t, testkit.Err(shopsOf(c, "v1alpha1").Create(ctx, bad)))
	_, err := shopsOf(c, "v1").GetLive(ctx, types.NamespacedName{Namespace: "default", Name: "bad"})
	const want = `conversion webhook for shops.example.com/v1alpha1, Kind=Shop failed: webhook: convert Shop "default/bad" from shops.example.com/v1alpha1 to shops.example.com/v1: spec.address "nowhere" has no port`
	testkit.ErrorContains(t, err, want, "the error of a failed conversion")
}

// TestRollout_ConvergesThoughConversionNeedsTheNewPods: the API server reaches the conversion only
// through a Service, which has no endpoint before the pod is ready. The informer of the pod lists
// objects that need the conversion.
func TestRollout_ConvergesThoughConversionNeedsTheNewPods(t *testing.T) {
	ctx, c := realServer(t)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"address": "shop.test:80"}}}
	u.SetNamespace("default")
	u.SetName("shop")
	testkit.NoError(t, testkit.Err(shopsOf(c, "v1alpha1").Create(ctx, u)))
	var ready func() bool // the pod's readiness, which the Service looks at
	var refused atomic.Int64
	conversion := converting().Handler(hook.New(func(hook.Event) {}))
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready() {
			refused.Add(1)
			http.Error(w, "no endpoints available for service", http.StatusServiceUnavailable)
			return
		}
		conversion.ServeHTTP(w, r)
	}))
	defer service.Close()
	m := manager.New(c.Config(), manager.Options{Name: "shop-operator", Scheme: c.Scheme()})
	handle := cache.For[*Shop](m.Cache())
	reconciled := make(chan string, 10)
	ctl := controller.New("shop", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		s, err := handle.Get(ctx, key)
		if err == nil {
			reconciled <- fmt.Sprint(s.Name, s.Spec)
		}
		return controller.Result{}, err
	}), controller.Options{})
	ctl.Watch(source.Kind(handle, handler.Self()))
	m.Add(ctl)
	ready = func() bool {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return m.WaitReady(ended) == nil
	}
	installConversion(ctx, t, c, service.URL, pemOf(service))
	eventually(ctx, t, func() error { // until the API server uses the conversion
		if _, err := shopsOf(c, "v1").GetLive(ctx, types.NamespacedName{Namespace: "default", Name: "shop"}); err == nil {
			return fmt.Errorf("the API server does not use the conversion")
		}
		return nil
	})
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Run(running) }()
	select {
	case got := <-reconciled:
		testkit.Equal(t, got, "shop{shop.test 80 []}")
	case <-ctx.Done():
		t.Error("the rollout does not converge: the pod is not ready, so its conversion has no endpoint")
	}
	stop()
	testkit.Equal(t, <-done, nil)
	testkit.NotEqual(t, refused.Load(), 0, "the conversion was never refused, so the test shows nothing")
}
