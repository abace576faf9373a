// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/status"
)

// server is a real API server with the kind Gauge.
type server struct {
	cluster *envtest.Cluster
	client  *client.Client
	gauges  *client.Handle[*Gauge]
	skipped atomic.Int32 // applies that were not sent
}

func TestServer(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{CRDs: []string{"testdata"}})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	s := &server{cluster: cluster}
	hooks := hook.On(func(*hook.SkippedApply) { s.skipped.Add(1) })
	s.client, err = client.New(cluster.Config(), client.Options{Scheme: newScheme(), FieldOwner: "gauge-operator", Hook: hooks})
	testkit.NoError(t, err)
	defer s.client.Close()
	s.gauges = client.For[*Gauge](s.client)
	t.Run("an outdated status is not written", s.outdated)
	t.Run("a change of something else does not matter", s.otherChange)
	t.Run("without the right to get, a conflict stays a conflict", s.withoutGet)
	t.Run("an object that was replaced or is gone", s.replaced)
	t.Run("an unchanged status is a no-op", s.unchanged)
	t.Run("conditions of others", s.others)
	t.Run("conditions without a key", s.unkeyed)
	t.Run("the same conditions are valid", s.validation)
	t.Run("a controller retries quietly", s.controller)
	t.Run("await", s.await)
	t.Run("mistakes", s.mistakes)
}

func (s *server) create(t *testing.T, name string) *Gauge {
	t.Helper()
	g, err := s.gauges.Create(t.Context(), &Gauge{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: GaugeSpec{Level: 1}})
	testkit.NoError(t, err)
	return g
}

func (s *server) patch(t *testing.T, g *Gauge, patch string) *Gauge {
	t.Helper()
	g, err := s.gauges.Patch(t.Context(), keyOf(g), types.MergePatchType, []byte(patch), client.FieldOwner("user"))
	testkit.NoError(t, err)
	return g
}

func (s *server) live(t *testing.T, g *Gauge) *Gauge {
	t.Helper()
	g, err := s.gauges.GetLive(t.Context(), keyOf(g))
	testkit.NoError(t, err)
	return g
}

func keyOf(g *Gauge) types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
}

// writes are the two ways to write the status Ready=True of g.
var writes = map[string]func(s *server, ctx context.Context, g *Gauge) (*Gauge, error){
	"apply": func(s *server, ctx context.Context, g *Gauge) (*Gauge, error) {
		set := setFor(g)
		set.Current("Full", "")
		return status.Apply(ctx, s.gauges, set, desired(g, set.ApplyConfigurations()))
	},
	"update": func(s *server, ctx context.Context, g *Gauge) (*Gauge, error) {
		set := setFor(g)
		set.Current("Full", "")
		g.Status.Conditions, g.Status.ObservedGeneration = set.Conditions(), g.Generation
		return status.Update(ctx, s.gauges, set, g)
	},
}

func (s *server) outdated(t *testing.T) {
	for how, write := range writes {
		old := s.create(t, "outdated-"+how)
		changed := s.patch(t, old, `{"spec":{"level":2}}`)
		g, err := write(s, t.Context(), old)
		wants(t, err, "the status of default/outdated-"+how+" is not written: it was computed for generation 1, but the object is at generation 2")
		var outdated *status.OutdatedError
		if g != nil || !errors.As(err, &outdated) || outdated.Computed != 1 || outdated.Newest != 2 || outdated.Object != keyOf(old) || !apierrors.IsConflict(err) {
			t.Errorf("%s: %#v, %v", how, err, g)
		}
		if live := s.live(t, old); live.ResourceVersion != changed.ResourceVersion || len(live.Status.Conditions) != 0 {
			t.Errorf("%s: it was written: %+v", how, live.Status)
		}
		if g, err = write(s, t.Context(), changed); err != nil || text(g.Status.Conditions) != `Ready=True Full "" 2` {
			t.Errorf("%s: %v %v", how, g, err)
		}
	}
	// A status that was computed before the object was read again, as code that retries conflicts
	// may do.
	old := s.create(t, "outdated-read-again")
	set := setFor(old)
	set.Current("Full", "")
	again := s.patch(t, old, `{"spec":{"level":2}}`)
	again.Status.Conditions = set.Conditions()
	_, err := status.Update(t.Context(), s.gauges, set, again)
	wants(t, err, "computed for generation 1, but the object is at generation 2")
	testkit.ErrorSatisfies(t, err, apierrors.IsConflict)
}

func (s *server) otherChange(t *testing.T) {
	old := s.create(t, "labelled-apply")
	s.patch(t, old, `{"metadata":{"labels":{"a":"b"}}}`)
	if g, err := writes["apply"](s, t.Context(), old); err != nil || g.Labels["a"] != "b" || text(g.Status.Conditions) != `Ready=True Full "" 1` {
		t.Errorf("%v %v", g, err)
	}
	// An update replaces the whole status, so it must not miss a change of it.
	old = s.create(t, "labelled-update")
	s.patch(t, old, `{"metadata":{"labels":{"a":"b"}}}`)
	if _, err := writes["update"](s, t.Context(), old); !apierrors.IsConflict(err) || errors.As(err, new(*status.OutdatedError)) {
		t.Errorf("%v", err)
	}
}

const writersRole = `
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: writer}
rules:
- {apiGroups: [status.setpoint.dev], resources: [gauges/status], verbs: [patch, update]}
---
kind: ClusterRoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writer}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: writer}
`

func (s *server) withoutGet(t *testing.T) {
	testkit.NoError(t, s.cluster.ApplyYAML(t.Context(), []byte(writersRole)))
	cfg, err := s.cluster.ConfigFor("writer")
	testkit.NoError(t, err)
	limited, err := client.New(cfg, client.Options{Scheme: newScheme(), FieldOwner: "gauge-operator"})
	testkit.NoError(t, err)
	defer limited.Close()
	writer := &server{gauges: client.For[*Gauge](limited)}
	for how, write := range writes {
		old := s.create(t, "unreadable-"+how)
		changed := s.patch(t, old, `{"metadata":{"labels":{"a":"b"}}}`)
		testkit.ErrorSatisfies(t, testkit.Err(write(writer, t.Context(), old)), apierrors.IsConflict, how)
		testkit.Equal(t, testkit.Err(write(writer, t.Context(), changed)), nil, how)
	}
}

func (s *server) replaced(t *testing.T) {
	for how, write := range writes {
		old := s.create(t, "replaced-"+how)
		testkit.NoError(t, s.gauges.Delete(t.Context(), keyOf(old)))
		testkit.ErrorSatisfies(t, testkit.Err(write(s, t.Context(), old.DeepCopyObject().(*Gauge))), apierrors.IsNotFound, how, "gone")
		successor := s.create(t, old.Name)
		_, err := write(s, t.Context(), old)
		wants(t, err, "default/replaced-"+how, "deleted and created again")
		var outdated *status.OutdatedError
		if !errors.As(err, &outdated) || !outdated.Replaced || !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", how, err)
		}
		testkit.Equal(t, s.live(t, old).ResourceVersion, successor.ResourceVersion, how)
	}
}

func (s *server) unchanged(t *testing.T) {
	for how, write := range writes {
		first, err := write(s, t.Context(), s.create(t, "unchanged-"+how))
		testkit.NoError(t, err)
		second, err := write(s, t.Context(), s.live(t, first))
		testkit.NoError(t, err, how)
		testkit.Equal(t, second.ResourceVersion, first.ResourceVersion, how)
	}
	// UnlessAlready sends nothing from the third time on: after the first, the version is another.
	g := s.create(t, "unchanged-skipped")
	for n := range 4 {
		set := setFor(g)
		set.Current("Full", "")
		var err error
		g, err = status.Apply(t.Context(), s.gauges, set, desired(g, set.ApplyConfigurations()), client.UnlessAlready(g))
		testkit.NoError(t, err)
		testkit.Equal(t, s.skipped.Load(), int32(max(0, n-1)), "applies were skipped")
	}
}

// others: an apply neither removes nor takes over conditions of other field owners.
func (s *server) others(t *testing.T) {
	g := s.create(t, "others")
	theirs := setFor(g)
	theirs.True("Theirs", "Good", "")
	g, err := status.Apply(t.Context(), s.gauges, theirs, desired(g, theirs.ApplyConfigurations()), client.FieldOwner("them"))
	testkit.NoError(t, err)
	ours := setFor(g)
	ours.InProgress("Filling", "")
	g, err = status.Apply(t.Context(), s.gauges, ours, desired(g, ours.ApplyConfigurations()))
	testkit.NoError(t, err)
	if got := text(g.Status.Conditions); !strings.Contains(got, "Theirs=True") || !strings.Contains(got, "Reconciling=True") {
		t.Errorf("got %s", got)
	}
	ours = setFor(g)
	ours.Current("Full", "")
	g, err = status.Apply(t.Context(), s.gauges, ours, desired(g, ours.ApplyConfigurations()))
	testkit.NoError(t, err)
	testkit.Equal(t, text(g.Status.Conditions), "Theirs=True Good \"\" 1\nReady=True Full \"\" 1")
	theirs = setFor(g)
	g, err = status.Apply(t.Context(), s.gauges, theirs, desired(g, theirs.ApplyConfigurations()), client.FieldOwner("them"))
	testkit.NoError(t, err)
	testkit.Equal(t, text(g.Status.Conditions), `Ready=True Full "" 1`)
}

// unkeyed: without listType=map, the second owner of conditions learns what the CRD lacks, and
// then changes nothing until it is corrected.
func (s *server) unkeyed(t *testing.T) {
	crds := client.ForKind[*unstructured.Unstructured](s.client, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	list := "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions/x-kubernetes-list-"
	change := func(patch string) {
		t.Helper()
		testkit.NoError(t, testkit.Err(crds.Patch(t.Context(), types.NamespacedName{Name: "gauges.status.setpoint.dev"}, types.JSONPatchType, []byte(patch))))
	}
	change(`[{"op":"remove","path":"` + list + `type"},{"op":"remove","path":"` + list + `map-keys"}]`)
	apply := func(g *Gauge, owner, condition string) (*Gauge, error) {
		set := setFor(g)
		set.True(condition, "Good", "")
		return status.Apply(t.Context(), s.gauges, set, desired(g, set.ApplyConfigurations()), client.FieldOwner(owner))
	}
	// The API server uses the new schema when an apply owns the list as a whole.
	var ours *Gauge
	for try := 0; ; try++ {
		g, err := apply(s.create(t, fmt.Sprint("unkeyed-", try)), "us", "Ours")
		testkit.NoError(t, err)
		if ours = g; slices.ContainsFunc(g.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return strings.Contains(e.FieldsV1.String(), `"f:conditions":{}`)
		}) {
			break
		}
	}
	const want = `status of default/unkeyed-`
	_, err := apply(ours, "them", "Theirs")
	wants(t, err, want, "the condition Ours of another field manager is lost, because the API server does not keep conditions by their types; "+
		"in the CRD, add x-kubernetes-list-type: map and x-kubernetes-list-map-keys: [type] to status.conditions (+listType=map and +listMapKey=type in Go)")
	testkit.Equal(t, controller.IsTerminal(err), true, "the error is not terminal")
	lost := s.live(t, ours)
	for range 3 { // the loop has ended
		_, err := apply(lost, "us", "Ours")
		wants(t, err, want, "the condition Theirs of another field manager is lost")
	}
	// The read after a conflict finds the other condition, too.
	_, err = apply(ours, "us", "Ours")
	wants(t, err, want, "the condition Theirs of another field manager is lost")
	if now := s.live(t, ours); now.ResourceVersion != lost.ResourceVersion || text(now.Status.Conditions) != `Theirs=True Good "" 1` {
		t.Errorf("an apply was stored: %v", text(now.Status.Conditions))
	}

	change(`[{"op":"add","path":"` + list + `type","value":"map"},{"op":"add","path":"` + list + `map-keys","value":["type"]}]`)
	for {
		now, err := apply(lost, "us", "Ours")
		if err == nil {
			testkit.Equal(t, text(now.Status.Conditions), "Theirs=True Good \"\" 1\nOurs=True Good \"\" 1")
			return
		}
		wants(t, err, want)
	}
}

// validation: the Set refuses what the API server refuses, and nothing else.
func (s *server) validation(t *testing.T) {
	g := s.create(t, "validation")
	letters := func(n int) string { return strings.Repeat("a", n) }
	for _, c := range []struct{ conditionType, reason, message string }{
		{"Ready", "Full", ""}, {"example.com/Ready", "Full", "m"}, {"a-b_c.d", "A,b:c_", "m"}, {"9", "a", ""},
		{"Ready", "", ""}, {"", "Full", ""}, {"Ready", "Full:", ""}, {"Ready", "9", ""}, {"Ready", "a b", ""}, {"Ready", "a-b", ""},
		{"is ready", "Full", ""}, {"Ready-", "Full", ""}, {"Example.com/Ready", "Full", ""}, {"a/b/c", "Full", ""}, {"/Ready", "Full", ""},
		{"Ready", letters(1024), ""}, {"Ready", letters(1025), ""}, {letters(316), "Full", ""}, {letters(317), "Full", ""},
	} {
		set := setFor(g)
		set.True(c.conditionType, c.reason, c.message)
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []metav1.Condition{
			{Type: c.conditionType, Status: "True", Reason: c.reason, Message: c.message, LastTransitionTime: metav1.Now()},
		}}})
		testkit.NoError(t, err)
		_, err = client.SubresourceOf[*Gauge](s.gauges, "status").Patch(t.Context(), keyOf(g), types.MergePatchType, patch)
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		testkit.Equal(t, err == nil, set.Err() == nil, fmt.Sprintf("%.40q, %.40q: %v", c.conditionType, c.reason, err))
	}
	set := setFor(s.live(t, g))
	set.False("Long", "Full", strings.Repeat("€", 20_000))
	testkit.Equal(t, testkit.Err(status.Apply(t.Context(), s.gauges, set, desired(g, set.ApplyConfigurations()))), nil, "a long message")
}

// controller: the spec changes while a Reconcile computes the status. The next Reconcile writes it,
// and the log has no error.
func (s *server) controller(t *testing.T) {
	g := s.create(t, "controlled")
	c := cache.New(s.client, cache.Options{})
	h := cache.For[*Gauge](c)
	var log bytes.Buffer
	var once sync.Once
	var refused error
	reconcile := controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		obj, err := h.Get(ctx, key)
		if err != nil || key != keyOf(g) {
			return controller.Result{}, err
		}
		set := setFor(obj)
		set.Current("Full", fmt.Sprint("level ", obj.Spec.Level))
		once.Do(func() { s.patch(t, g, `{"spec":{"level":2}}`) })
		_, err = status.Apply(ctx, s.gauges, set, desired(obj, set.ApplyConfigurations()))
		if refused == nil {
			refused = err
		}
		return controller.Result{}, err
	})
	ctrl := controller.New("gauge", reconcile, controller.Options{Workers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctrl.Watch(source.Kind(h, handler.Self()))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	running.Go(func() { _ = ctrl.Run(ctx) })
	got, err := status.Await(ctx, h, keyOf(g), status.True("Ready"))
	stop()
	running.Wait()
	testkit.Equal(t, err, nil)
	if err == nil {
		testkit.Equal(t, text(got.Status.Conditions), `Ready=True Full "level 2" 2`)
	}
	if !errors.As(refused, new(*status.OutdatedError)) {
		t.Errorf("the first Reconcile returned %v", refused)
	}
	if text := log.String(); strings.Contains(text, "level=ERROR") || !strings.Contains(text, `level=INFO msg="reconcile will be retried"`) ||
		!strings.Contains(text, "computed for generation 1") {
		t.Error(text)
	}
}

func (s *server) await(t *testing.T) {
	g := s.create(t, "awaited")
	c := cache.New(s.client, cache.Options{})
	h := cache.For[*Gauge](c)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	defer running.Wait()
	defer stop()
	for level := range 20 {
		g = s.patch(t, g, fmt.Sprintf(`{"spec":{"level":%d}}`, level+2))
		written := make(chan error, 1)
		go func() {
			_, err := writes["apply"](s, ctx, g)
			written <- err
		}()
		got, err := status.Await(ctx, h, keyOf(g), status.True("Ready"))
		err = errors.Join(err, <-written)
		if err != nil || got.Spec.Level != level+2 || got.Status.Conditions[0].ObservedGeneration != got.Generation {
			t.Fatalf("%+v %v", got, err)
		}
		g = got
	}
}

func (s *server) mistakes(t *testing.T) {
	g, ctx := s.create(t, "mistakes"), t.Context()
	other := s.create(t, "other")
	bare := &Gauge{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mistakes"}}
	full := func(of *Gauge) *status.Set {
		set := setFor(of)
		set.Current("Full", "")
		return set
	}
	twice := full(g)
	twice.False("Ready", "Empty", "")
	for name, c := range map[string]struct {
		set   *status.Set
		obj   *Gauge
		words []string
	}{
		"no set":         {nil, g, []string{"the Set is nil"}},
		"set twice":      {twice, g, []string{"the condition Ready is set to True (Full) and then set to False (Empty)"}},
		"another object": {full(g), other, []string{"default/mistakes", `is for "default/other"`}},
		"not read":       {full(bare), bare, []string{"default/mistakes", "no UID or no resourceVersion", "one that was read"}},
	} {
		_, err := status.Apply(ctx, s.gauges, c.set, desired(c.obj, nil))
		wants(t, err, append(c.words, "status")...)
		_, err = status.Update(ctx, s.gauges, c.set, c.obj)
		if strings.Contains(err.Error(), "the object is") {
			c.words = []string{"default/mistakes", `the object is "default/other"`}
		}
		wants(t, err, append(c.words, "status")...)
		testkit.Equal(t, s.live(t, g).ResourceVersion, g.ResourceVersion, name, "something was written")
	}
	_, err := status.Apply(ctx, s.gauges, full(g), nil)
	wants(t, err, "nothing to write")
	_, err = status.Update(ctx, s.gauges, full(g), nil)
	wants(t, err, "nothing to write")
	wrong := desired(g, nil)
	wrong.TypeMetaApplyConfiguration = *metav1ac.TypeMeta().WithKind("Dial").WithAPIVersion(gauges.String())
	_, err = status.Apply(ctx, s.gauges, full(g), wrong)
	wants(t, err, "of a Dial, not of a Gauge")
}
