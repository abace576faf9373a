// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"fmt"
	"net/http"
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
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func newClient(t *testing.T, api *sim.Server, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(api.Config(), o)
	testkit.NoError(t, err)
	return c
}

func name(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// wants fails the test unless err has all the words.
func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	testkit.NotEqual(t, err, nil)
	for _, w := range words {
		testkit.ErrorContains(t, err, w)
	}
}

func TestHandle(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	ctx, deployments := t.Context(), client.For[*appsv1.Deployment](newClient(t, api, client.Options{FieldOwner: "test"}))
	key := name("default", "web")
	ok := func(d *appsv1.Deployment, err error) *appsv1.Deployment {
		t.Helper()
		testkit.NoError(t, err)
		return d
	}
	d := ok(deployments.Create(ctx, web()))
	d.Labels = map[string]string{"app": "web"}
	d = ok(deployments.Update(ctx, d))
	d.Status.Replicas = 3
	d = ok(deployments.UpdateStatus(ctx, d))
	ok(deployments.Apply(ctx, appsac.Deployment("web", "default").WithSpec(appsac.DeploymentSpec().WithReplicas(2))))
	ok(deployments.ApplyStatus(ctx, appsac.Deployment("web", "default").WithStatus(appsac.DeploymentStatus().WithReadyReplicas(1))))
	ok(deployments.Patch(ctx, key, types.MergePatchType, []byte(`{"metadata":{"labels":{"more":"x"}}}`)))
	testkit.ErrorSatisfies(t, testkit.Err(deployments.Update(ctx, d)), apierrors.IsConflict, "an update of an old version")
	d = ok(deployments.GetLive(ctx, key))
	if d.Labels["app"] != "web" || d.Labels["more"] != "x" || d.Status.Replicas != 3 || d.Status.ReadyReplicas != 1 || *d.Spec.Replicas != 2 {
		t.Errorf("got %+v", d)
	}
	testkit.ErrorSatisfies(t, deployments.Delete(ctx, key, client.Preconditions("other", "")), apierrors.IsConflict, "deleting another one")
	testkit.ErrorSatisfies(t, deployments.Delete(ctx, key, client.Preconditions(d.UID, "1")), apierrors.IsConflict, "deleting an old version")
	testkit.Equal(t, deployments.Delete(ctx, key, client.Preconditions(d.UID, d.ResourceVersion)), nil)
	testkit.ErrorSatisfies(t, testkit.Err(deployments.GetLive(ctx, key)), apierrors.IsNotFound, "after the deletion")
	for _, r := range api.Requests() {
		if r.Verb == "discover" || r.Verb == "get" || r.Verb == "delete" {
			continue
		}
		testkit.Equal(t, r.Query.Get("fieldManager"), "test", r, "the field owner")
		testkit.Equal(t, r.Query.Get("force") == "true", r.Verb == "apply", r, "forced")
	}
	testkit.Equal(t, len(api.Requests())-api.Count("", sim.Deployments), 1, "requests for discovery")
}

func TestHandleMistakes(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Namespaces)
	c, ctx := newClient(t, api, client.Options{}), t.Context()
	maps, namespaces, secrets := client.For[*corev1.ConfigMap](c), client.For[*corev1.Namespace](c), client.For[*corev1.Secret](c)
	for what, call := range map[string]struct {
		do   func() error
		want []string
	}{
		"no namespace":           {func() error { _, err := maps.GetLive(ctx, name("", "a")); return err }, []string{"ConfigMap is a namespaced kind", "name the namespace"}},
		"no namespace, deleting": {func() error { return maps.Delete(ctx, name("", "a")) }, []string{"name the namespace"}},
		"no namespace, patching": {func() error {
			_, err := maps.Patch(ctx, name("", "a"), types.MergePatchType, []byte("{}"))
			return err
		}, []string{"name the namespace"}},
		"no namespace, creating": {func() error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}})
			return err
		}, []string{"name the namespace"}},
		"a namespace too many": {func() error { _, err := namespaces.GetLive(ctx, name("x", "a")); return err }, []string{"Namespace is a cluster-scoped kind", `"x"`}},
		"apply without a name": {func() error { _, err := maps.Apply(ctx, coreac.ConfigMap("", "default")); return err }, []string{"apply ConfigMap", "no name"}},
		"apply nil":            {func() error { _, err := maps.Apply(ctx, nil); return err }, []string{"apply ConfigMap", "no name"}},
		"apply a nil pointer": {func() error {
			_, err := maps.ApplyStatus(ctx, (*coreac.ConfigMapApplyConfiguration)(nil))
			return err
		}, []string{"apply the status of ConfigMap", "no name"}},
		"apply without a namespace": {func() error {
			_, err := maps.Apply(ctx, coreac.ConfigMap("a", "").WithNamespace(""))
			return err
		}, []string{"apply ConfigMap a", "name the namespace"}},
		"apply another version": {func() error {
			_, err := maps.Apply(ctx, coreac.ConfigMap("a", "default").WithAPIVersion("v2"))
			return err
		}, []string{"apply ConfigMap default/a", "of version v2, not of v1"}},
		"no name":         {func() error { _, err := maps.GetLive(ctx, name("default", "")); return err }, []string{"get ConfigMap", "name is empty"}},
		"no name, delete": {func() error { return maps.Delete(ctx, name("default", "")) }, []string{"delete ConfigMap", "name is empty"}},
		"no name, update": {func() error {
			_, err := maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}})
			return err
		}, []string{"update ConfigMap", "name is empty"}},
		"no name, create": {func() error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}})
			return err
		}, []string{"create ConfigMap", "name is empty"}},
		"the wrong kind": {func() error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
			return err
		}, []string{"create ConfigMap default/a", "Secret of v1", "ConfigMap of v1"}},
		"a negative page": {func() error {
			_, err := client.Collect(maps.ListLive(ctx, client.ListOptions{PageSize: -1}))
			return err
		}, []string{"client.ListOptions.PageSize", "negative"}},
		"list a namespace too many": {func() error {
			_, err := client.Collect(namespaces.ListLive(ctx, client.ListOptions{Namespace: "x"}))
			return err
		}, []string{"cluster-scoped", `"x"`}},
		"apply another kind": {func() error { _, err := maps.Apply(ctx, coreac.Secret("a", "default")); return err }, []string{"apply ConfigMap default/a", "of a Secret, not of a ConfigMap"}},
		"create nil":         {func() error { _, err := maps.Create(ctx, nil); return err }, []string{"create ConfigMap", "nil"}},
		"update nil":         {func() error { _, err := maps.Update(ctx, nil); return err }, []string{"update ConfigMap", "nil"}},
		"update status nil":  {func() error { _, err := maps.UpdateStatus(ctx, nil); return err }, []string{"status of ConfigMap", "nil"}},
		"not served":         {func() error { _, err := secrets.GetLive(ctx, name("default", "a")); return err }, []string{"does not serve Secret of v1", "install its CRD", sim.Host}},
	} {
		t.Run(what, func(t *testing.T) { wants(t, call.do(), call.want...) })
	}
}

func TestUnknownType(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	c, ctx := newClient(t, api, client.Options{Scheme: runtime.NewScheme()}), t.Context()
	h := client.For[*corev1.ConfigMap](c)
	_, applied := h.Apply(ctx, coreac.ConfigMap("a", "default"))
	_, created := h.Create(ctx, &corev1.ConfigMap{})
	_, updated := h.UpdateStatus(ctx, nil)
	_, read := h.GetLive(ctx, name("default", "a"))
	_, listed := client.Collect(h.ListLive(ctx, client.ListOptions{}))
	_, patched := h.Patch(ctx, name("default", "a"), types.MergePatchType, nil)
	_, ensured := h.EnsureFinalizer(ctx, nil, "example.com/a")
	_, pruned := h.Prune(ctx, nil, nil, nil)
	_, scaled := client.SubresourceOf[*corev1.ConfigMap](h, "scale").Get(ctx, name("default", "a"))
	for _, err := range []error{applied, created, updated, read, listed, patched, ensured, pruned, scaled, h.Served(ctx), h.Delete(ctx, name("default", "a"))} {
		wants(t, err, "client.For[*v1.ConfigMap]", "the scheme does not know the type", "AddToScheme")
	}
	wants(t, client.For[*unstructured.Unstructured](c).Served(ctx), "client.For[*unstructured.Unstructured]: the type has no kind")
	wants(t, client.For[*metav1.PartialObjectMetadata](c).Served(ctx), "the type has no kind", "client.ForKind")
	wants(t, client.For[*corev1.ConfigMap](nil).Served(ctx), "the client is nil", "client.New")
	wants(t, client.ForKind[*unstructured.Unstructured](nil, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}).Served(ctx), "the client is nil")
	wants(t, client.ForKind[*unstructured.Unstructured](c, schema.GroupVersionKind{Kind: "Pod"}).Served(ctx), "client.ForKind[*unstructured.Unstructured]", "name both")
	known := newClient(t, api, client.Options{})
	wants(t, client.ForKind[*corev1.ConfigMap](known, corev1.SchemeGroupVersion.WithKind("Pod")).Served(ctx), "ConfigMap of v1, not Pod of v1")
	if _, err := client.For[client.Object](c).GetLive(ctx, name("default", "a")); err == nil {
		t.Error("an interface passed as a kind")
	} else {
		wants(t, err, "give a pointer to an API type")
	}
	testkit.Equal(t, len(api.Requests()), 0)
}

func TestServed(t *testing.T) {
	api := sim.NewServer()
	c, ctx := newClient(t, api, client.Options{}), t.Context()
	deployments := client.For[*appsv1.Deployment](c)
	absent := func() {
		t.Helper()
		err := deployments.Served(ctx)
		var notServed *client.NotServedError
		if !errors.As(err, &notServed) || notServed.Kind.Kind != "Deployment" || !meta.IsNoMatchError(err) {
			t.Errorf("got %v", err)
		}
		wants(t, err, "does not serve Deployment of apps/v1", "install its CRD")
	}
	absent()
	api.Serve(sim.Deployments)
	testkit.Equal(t, deployments.Served(ctx), nil)
	api.Withdraw(sim.Deployments)
	absent()

	api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no") })
	if err := deployments.Served(ctx); !apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		t.Errorf("got %v", err)
	}
	api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
	wants(t, deployments.Served(ctx), sim.Host, "apps/v1", "refused")
}

// TestMapping: a mapping is kept until it is forgotten, and a kind that returns as another resource
// is found.
func TestMapping(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	c, ctx := newClient(t, api, client.Options{}), t.Context()
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	mapping := func() *meta.RESTMapping {
		t.Helper()
		m, err := c.Mapping(ctx, kind)
		testkit.NoError(t, err)
		return m
	}
	if m := mapping(); m.Resource.Resource != "deployments" || m.Scope.Name() != meta.RESTScopeNameNamespace {
		t.Errorf("got %+v", m)
	}
	mapping()
	testkit.Equal(t, len(api.Requests()), 1)
	api.Withdraw(sim.Deployments)
	api.Serve(sim.Resource{Group: "apps", Version: "v1", Kind: "Deployment", Name: "rollouts"})
	c.Forget(kind)
	if m := mapping(); m.Resource.Resource != "rollouts" || m.Scope.Name() != meta.RESTScopeNameRoot {
		t.Errorf("got %+v", m)
	}
}

// widget is a custom kind.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	return &widget{TypeMeta: w.TypeMeta, ObjectMeta: *w.DeepCopy()}
}

// Marshal and Unmarshal make it look like a protobuf message, as generated types of some CRDs do.
func (w *widget) Marshal() ([]byte, error) { return nil, errors.New("no protobuf for a custom kind") }

func (w *widget) Unmarshal([]byte) error { return errors.New("no protobuf for a custom kind") }

// TestWire shows that built-in kinds travel as protobuf and custom ones as JSON.
func TestWire(t *testing.T) {
	widgets := sim.Resource{Group: "example.com", Version: "v1", Kind: "widget", Name: "widgets", Namespaced: true}
	s := runtime.NewScheme()
	s.AddKnownTypes(schema.GroupVersion{Group: "example.com", Version: "v1"}, &widget{})
	metav1.AddToGroupVersion(s, schema.GroupVersion{Group: "example.com", Version: "v1"})
	testkit.NoError(t, corev1.AddToScheme(s))
	api := sim.NewServer(sim.ConfigMaps, widgets)
	c, ctx, meta := newClient(t, api, client.Options{Scheme: s}), t.Context(), metav1.ObjectMeta{Namespace: "default", Name: "a"}
	testkit.NoError(t, testkit.Err(client.For[*corev1.ConfigMap](c).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta})))
	if w, err := client.For[*widget](c).Create(ctx, &widget{ObjectMeta: meta}); err != nil || w.UID == "" {
		t.Fatal(w, err)
	}
	want := map[string]string{"configmaps": runtime.ContentTypeProtobuf, "widgets": runtime.ContentTypeJSON}
	for _, r := range api.Requests() {
		if r.Verb != "create" {
			continue
		}
		testkit.Equal(t, r.Header.Get("Content-Type"), want[r.Resource.Resource], fmt.Sprintf("%s goes as", r))
		testkit.HasPrefix(t, r.Header.Get("User-Agent"), "client.test/", fmt.Sprintf("%s comes from", r))
	}
}

func TestNew(t *testing.T) {
	if _, err := client.New(nil, client.Options{}); err == nil {
		t.Error("no configuration, no error")
	} else {
		wants(t, err, "nil", "LoadConfig")
	}
	_, err := client.New(&rest.Config{}, client.Options{FieldOwner: strings.Repeat("x", 129)})
	wants(t, err, "client.Options.FieldOwner", "128")
	_, err = client.New(&rest.Config{}, client.Options{FieldOwner: "a\nb"})
	wants(t, err, "client.Options.FieldOwner", "printable")
	_, err = client.New(&rest.Config{Host: "http://a b"}, client.Options{})
	wants(t, err, "client.New")
	cfg := &rest.Config{Host: sim.Host}
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	testkit.Equal(t, cfg.QPS, 0, "QPS")
	testkit.Equal(t, c.Config().QPS, -1, "QPS")
	c.Close()
}

// TestRateLimit shows that a limit asked for holds for all kinds together.
func TestRateLimit(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
	cfg := api.Config()
	cfg.QPS, cfg.Burst = 0.001, 3 // two discoveries of v1 and one read
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	ctx := t.Context()
	testkit.NoError(t, client.For[*corev1.ConfigMap](c).Served(ctx))
	testkit.NoError(t, client.For[*corev1.Secret](c).Served(ctx))
	limiter := c.Config().RateLimiter
	if limiter == nil || !limiter.TryAccept() || limiter.TryAccept() {
		t.Error("want a limiter of which two of three tokens are used")
	}
}
