// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

type object = unstructured.Unstructured

var (
	lamps    = schema.GroupKind{Group: "unserved.setpoint.dev", Kind: "Lamp"}
	lampsV1  = lamps.WithVersion("v1")
	crdKind  = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	lampsCRD = types.NamespacedName{Name: "lamps.unserved.setpoint.dev"}
)

// crd returns the CRD of the Lamps.
func crd(version string, scope meta.RESTScopeName) *object {
	return &object{Object: map[string]any{
		"apiVersion": crdKind.GroupVersion().String(), "kind": crdKind.Kind, "metadata": map[string]any{"name": lampsCRD.Name},
		"spec": map[string]any{
			"group": lamps.Group, "names": map[string]any{"kind": lamps.Kind, "listKind": "LampList", "plural": "lamps", "singular": "lamp"},
			"scope": map[meta.RESTScopeName]any{meta.RESTScopeNameNamespace: "Namespaced", meta.RESTScopeNameRoot: "Cluster"}[scope],
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}

func lamp() *object {
	return &object{Object: map[string]any{
		"apiVersion": lampsV1.GroupVersion().String(), "kind": lamps.Kind, "metadata": map[string]any{"namespace": "default", "name": "a"},
	}}
}

// server is a sim or a real API server, and a client whose requests it may spoil.
type server struct {
	t     *testing.T
	cfg   *rest.Config
	admin *client.Handle[*object] // of the CRD
	spoil atomic.Pointer[func(path string) (code int)]
}

func serveLamps(t *testing.T, cfg *rest.Config) *server {
	t.Helper()
	admin, err := client.New(cfg, client.Options{FieldOwner: "admin"})
	testkit.NoError(t, err)
	t.Cleanup(admin.Close)
	return &server{t: t, cfg: cfg, admin: client.ForKind[*object](admin, crdKind)}
}

// client returns a new one.
func (s *server) client() *client.Client {
	s.t.Helper()
	cfg := rest.CopyConfig(s.cfg)
	cfg.Wrap(func(to http.RoundTripper) http.RoundTripper { return &spoiler{to, s} })
	c, err := client.New(cfg, client.Options{FieldOwner: "operator"})
	testkit.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// spoiler is a transport that asks its server for spoiled answers.
type spoiler struct {
	http.RoundTripper

	of *server
}

func (p *spoiler) RoundTrip(r *http.Request) (*http.Response, error) {
	code := 0
	if spoil := p.of.spoil.Load(); spoil != nil {
		code = (*spoil)(r.URL.Path)
	}
	if code == 0 {
		return p.RoundTripper.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(http.StatusText(code))), Request: r,
	}, nil
}

// WrappedRoundTripper lets a client close idle connections.
func (p *spoiler) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }

// spoiled makes the answer of a path one with a code, or leaves it if the code is 0.
func (s *server) spoiled(how func(path string) (code int)) {
	if how == nil {
		how = func(string) int { return 0 }
	}
	s.spoil.Store(&how)
}

// install creates the CRD and waits until its kind is served.
func (s *server) install(version string, scope meta.RESTScopeName) {
	s.t.Helper()
	testkit.NoError(s.t, testkit.Err(s.admin.Create(s.t.Context(), crd(version, scope))))
	s.until("the kind is served", func(ctx context.Context) bool {
		c := s.client()
		_, err := client.Collect(client.ForKind[*object](c, lamps.WithVersion(version)).ListLive(ctx, client.ListOptions{}))
		return err == nil
	})
}

// uninstall deletes the CRD and waits until its kind is gone.
func (s *server) uninstall() {
	s.t.Helper()
	testkit.NoError(s.t, s.admin.Delete(s.t.Context(), lampsCRD))
	s.until("the CRD is gone", func(ctx context.Context) bool {
		_, err := s.admin.GetLive(ctx, lampsCRD)
		_, list := s.client().Discovery().ServerResourcesForGroupVersion(lampsV1.GroupVersion().String())
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(list)
	})
}

func (s *server) until(what string, is func(context.Context) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for !is(ctx) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			s.t.Fatalf("after a minute: not true that %s", what)
		}
	}
}

// calls are all ways to ask for Lamps, of a client.
func calls(ctx context.Context, c *client.Client) map[string]func() error {
	h, key, none := client.ForKind[*object](c, lampsV1), name("default", "a"), client.ListOptions{}
	return map[string]func() error{
		"Served":   func() error { return h.Served(ctx) },
		"Mapping":  func() error { return second(c.Mapping(ctx, lampsV1)) },
		"GetLive":  func() error { return second(h.GetLive(ctx, key)) },
		"ListLive": func() error { return second(client.Collect(h.ListLive(ctx, none))) },
		"WatchLive": func() error {
			for _, err := range h.WatchLive(ctx, none) {
				return err
			}
			return nil
		},
		"Create":       func() error { return second(h.Create(ctx, lamp())) },
		"Update":       func() error { return second(h.Update(ctx, lamp())) },
		"UpdateStatus": func() error { return second(h.UpdateStatus(ctx, lamp())) },
		"Patch":        func() error { return second(h.Patch(ctx, key, types.MergePatchType, []byte(`{}`))) },
		"PatchStatus":  func() error { return second(h.PatchStatus(ctx, key, types.MergePatchType, []byte(`{}`))) },
		"Apply":        func() error { return second(h.Apply(ctx, client.UnstructuredConfiguration(lamp()))) },
		"ApplyStatus":  func() error { return second(h.ApplyStatus(ctx, client.UnstructuredConfiguration(lamp()))) },
		"Delete":       func() error { return h.Delete(ctx, key) },
		"DeleteAll":    func() error { return h.DeleteAll(ctx, client.ListOptions{Namespace: "default"}) },
		"RESTMapping":  func() error { return second(c.RESTMapper().RESTMapping(lamps, "v1")) },
		"RESTMappings": func() error { return second(c.RESTMapper().RESTMappings(lamps, "v1")) },
		"ResourceFor":  func() error { return second(c.RESTMapper().ResourceFor(lampsV1.GroupVersion().WithResource("lamps"))) },
		"KindsFor":     func() error { return second(c.RESTMapper().KindsFor(lampsV1.GroupVersion().WithResource("lamps"))) },
	}
}

// each calls them all. Each call gets a client of its own, unless known is given: its Mapping keeps
// its answer until another call notices that it is outdated.
func (s *server) each(known *client.Client, check func(call string, err error)) {
	s.t.Helper()
	for call := range calls(s.t.Context(), s.client()) {
		c := known
		switch {
		case c == nil:
			c = s.client()
		case call == "Mapping":
			_ = calls(s.t.Context(), c)["GetLive"]()
		}
		check(call, calls(s.t.Context(), c)[call]())
	}
}

func (s *server) unserved(call string, err error) {
	s.t.Helper()
	var typed *client.NotServedError
	ofMapper := strings.HasPrefix(call, "REST") || strings.HasSuffix(call, "For")
	if !meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || !ofMapper && (!errors.As(err, &typed) || typed.Kind != lampsV1) {
		s.t.Errorf("%s of a kind that is not served: %v", call, err)
	}
}

func (s *server) unknown(call string, err error) {
	s.t.Helper()
	if err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || errors.As(err, new(*client.NotServedError)) {
		s.t.Errorf("%s, although discovery fails: %v", call, err)
	}
}

// cached runs a cache with a handle for a kind.
func (s *server) cached(kind schema.GroupVersionKind) *cache.Handle[*object] {
	s.t.Helper()
	reads := cache.New(s.client(), cache.Options{})
	h := cache.ForScope[*object](reads, cache.Scope{Kind: kind})
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- reads.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		testkit.Equal(s.t, <-ended, nil)
	})
	return h
}

// eachRead calls the reads of a handle, once its informer fails.
func (s *server) eachRead(h *cache.Handle[*object], check func(call string, err error)) {
	s.t.Helper()
	ctx := s.t.Context()
	testkit.Equal(s.t, h.Settled(ctx), nil)
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, namespaced := h.Namespaced()
	for call, err := range map[string]error{
		"cached Get": second(h.Get(ctx, name("default", "a"))), "cached List": second(h.List(ctx, cache.ListOptions{})),
		"WaitForSync": h.WaitForSync(short), "WaitForSome": h.WaitForSome(short), "Stale": h.Stale(), "State": h.State().Err, "Namespaced": namespaced,
	} {
		check(call, err)
	}
}

func TestKindThatIsNotServed_Sim(t *testing.T) { optionalKind(t, sim.New(t, scheme.Scheme).Config()) }

func TestKindThatIsNotServed_Server(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	t.Run("CRD", func(t *testing.T) { optionalKind(t, cluster.Config()) })
	t.Run("aggregated group", func(t *testing.T) { aggregatedGroup(t, cluster.Config()) })
}

// optionalKind follows a CRD that appears, disappears, and returns with another scope and version.
func optionalKind(t *testing.T, cfg *rest.Config) {
	s := serveLamps(t, cfg)
	ctx := t.Context()
	s.each(nil, s.unserved)
	h := s.cached(lampsV1)
	s.eachRead(h, s.unserved)

	s.spoiled(discoveryFails)
	s.each(nil, s.unknown)
	s.eachRead(s.cached(lampsV1), s.unknown)
	s.spoiled(nil)

	s.install("v1", meta.RESTScopeNameNamespace)
	testkit.Equal(t, h.WaitForSync(ctx), nil)
	known := s.client()
	mapped := func() (*meta.RESTMapping, error) { return known.RESTMapper().RESTMapping(lamps) }
	want := func(version string, scope meta.RESTScopeName) {
		t.Helper()
		if m, err := mapped(); err != nil || m.GroupVersionKind.Version != version || m.Scope.Name() != scope {
			t.Errorf("the mapping is %+v, %v", m, err)
		}
		gvr, err := known.RESTMapper().ResourceFor(schema.GroupVersionResource{Group: lamps.Group, Resource: "lamp"})
		testkit.Equal(t, err, nil)
		testkit.Equal(t, gvr.Version, version)
		gvk, err := known.RESTMapper().KindFor(schema.GroupVersionResource{Resource: "lamps"})
		testkit.Equal(t, err, nil)
		testkit.Equal(t, gvk.Version, version)
	}
	want("v1", meta.RESTScopeNameNamespace)
	s.each(known, func(call string, err error) {
		testkit.Equal(t, meta.IsNoMatchError(err), false, call, err)
	})
	lampsOf := client.ForKind[*object](known, lampsV1)
	testkit.Equal(t, testkit.Err(lampsOf.Apply(ctx, client.UnstructuredConfiguration(lamp()))), nil)

	// Its paths are gone, and discovery fails.
	for _, call := range []string{"GetLive", "ListLive", "Patch", "Apply", "ApplyStatus", "Delete"} {
		s.spoiled(nil)
		if err := lampsOf.Served(ctx); err != nil { // it is known
			t.Error(err)
		}
		s.spoiled(pathsGone)
		s.unknown(call, calls(ctx, known)[call]())
	}
	s.spoiled(nil)
	testkit.Equal(t, lampsOf.Served(ctx), nil)
	s.uninstall()
	s.each(known, s.unserved)
	s.each(nil, s.unserved)
	s.until("the informer notices it", func(context.Context) bool { return meta.IsNoMatchError(h.Stale()) })

	s.install("v1", meta.RESTScopeNameRoot)
	want("v1", meta.RESTScopeNameRoot)
	s.uninstall()
	s.install("v2", meta.RESTScopeNameRoot)
	want("v2", meta.RESTScopeNameRoot)
	s.each(known, s.unserved)
	s.uninstall()
}

// TestClient_AChangedScopeIsNoMissingObject: the first call after the change has the wrong path.
func TestClient_AChangedScopeIsNoMissingObject(t *testing.T) {
	s := serveLamps(t, sim.New(t, scheme.Scheme).Config())
	s.install("v1", meta.RESTScopeNameNamespace)
	known := client.ForKind[*object](s.client(), lampsV1)
	testkit.ErrorSatisfies(t, testkit.Err(known.GetLive(t.Context(), name("default", "a"))), apierrors.IsNotFound)
	s.uninstall()
	s.install("v1", meta.RESTScopeNameRoot)
	for range 2 {
		_, err := known.GetLive(t.Context(), name("default", "a"))
		s.unknown("GetLive", err)
	}
}

// discoveryFails refuses all requests for kinds.
func discoveryFails(path string) int {
	if path == "/api" || path == "/apis" || strings.HasSuffix(path, "/"+lampsV1.GroupVersion().String()) {
		return http.StatusServiceUnavailable
	}
	return 0
}

// pathsGone refuses requests for Lamps, too, as for a path that is not served.
func pathsGone(path string) int {
	if strings.Contains(path, "/lamps") {
		return http.StatusNotFound
	}
	return discoveryFails(path)
}

// down is an aggregated API without a server.
const down = "down.setpoint.dev"

// aggregatedGroup is a group whose server is down. Other groups are known.
func aggregatedGroup(t *testing.T, cfg *rest.Config) {
	s := serveLamps(t, cfg)
	ctx := t.Context()
	admin := client.ForKind[*object](s.client(), schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	if _, err := admin.Create(ctx, &object{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1." + down},
		"spec": map[string]any{
			"group": down, "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(10), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "default", "name": "missing"},
		},
	}}); err != nil {
		t.Fatal(err)
	}
	c := s.client()
	s.until("the group is registered", func(context.Context) bool {
		_, err := c.Discovery().ServerResourcesForGroupVersion(down + "/v1")
		return apierrors.IsServiceUnavailable(err)
	})
	kind := schema.GroupVersionKind{Group: down, Version: "v1", Kind: "Thing"}
	h := client.ForKind[*object](c, kind)
	for call, err := range map[string]error{
		"Served": h.Served(ctx), "GetLive": second(h.GetLive(ctx, name("default", "a"))), "Delete": h.Delete(ctx, name("default", "a")),
	} {
		s.unknown(call, err)
	}
	mapper := c.RESTMapper()
	for call, err := range map[string]error{
		"RESTMapping": second(mapper.RESTMapping(kind.GroupKind())), "RESTMapping v1": second(mapper.RESTMapping(kind.GroupKind(), "v1")),
		"ResourceFor": second(mapper.ResourceFor(schema.GroupVersionResource{Resource: "things"})),
		"KindFor":     second(mapper.KindFor(schema.GroupVersionResource{Group: down, Resource: "things"})),
	} {
		s.unknown(call, err)
		if !errors.As(err, new(*discovery.ErrGroupDiscoveryFailed)) || !strings.Contains(err.Error(), down) {
			t.Errorf("%s: %v", call, err)
		}
	}
	testkit.ErrorSatisfies(t, testkit.Err(mapper.RESTMapping(lamps)), meta.IsNoMatchError, "a kind of another group")
	pods, err := mapper.RESTMapping(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind())
	testkit.NoError(t, err, "another group")
	testkit.Equal(t, pods.Resource.Resource, "pods", "another group")
	s.eachRead(s.cached(kind), s.unknown)
}

// TestRESTMapper_AsksLittle: for all kinds once, and then in one small request for each call.
func TestRESTMapper_AsksLittle(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Deployments)
	mapper := newClient(t, api, client.Options{}).RESTMapper()
	asked := 0
	for i, want := range []int{2, 1, 1, 1} {
		testkit.Equal(t, testkit.Err(mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})), nil)
		testkit.Equal(t, len(api.Requests())-asked, want, fmt.Sprintf("call %d made requests", i))
		asked = len(api.Requests())
	}
	testkit.Equal(t, api.Requests()[asked-1].Resource.GroupVersion(), appsv1.SchemeGroupVersion, "the small request")
}
