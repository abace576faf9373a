// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1", ResourceVersion: "1", Generation: 1}}
	for _, c := range change {
		c(p)
	}
	return p
}

func generation(n int64) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Generation = n } }
func version(v string) func(*corev1.Pod)   { return func(p *corev1.Pod) { p.ResourceVersion = v } }
func uid(u types.UID) func(*corev1.Pod)    { return func(p *corev1.Pod) { p.UID = u } }
func labels(l map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = l }
}
func annotations(a map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = a }
}

// owned makes p's controlling owner the named one.
func owned(apiVersion, kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		controller := true
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Site", Name: "not-the-controller"},
			{APIVersion: apiVersion, Kind: kind, Name: name, Controller: &controller},
		}
	}
}

// others adds an owner that is not the controlling one.
func others(apiVersion, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: apiVersion, Kind: "Site", Name: name})
	}
}

func update(before, after *corev1.Pod) handler.Event {
	return handler.Event{Op: handler.Update, Old: before, New: after}
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// TestS2_Change: with S2, updates to an older version are kept: a restore may have undone any part.
func TestS2_Change(t *testing.T) {
	x := map[string]string{"x": "x"}
	for _, c := range []struct {
		name      string
		predicate handler.Predicate
		event     handler.Event
		keep      bool
	}{
		{"generation: status only", handler.GenerationChanged, update(pod(), pod(version("2"))), false},
		{"generation: status, undone by a restore", handler.GenerationChanged, update(pod(version("9")), pod(version("7"))), true},
		{"labels: undone by a restore", handler.LabelsChanged, update(pod(version("10")), pod(version("9"))), true},
		{"generation: spec", handler.GenerationChanged, update(pod(), pod(generation(2))), true},
		{"generation: the kind has none", handler.GenerationChanged, update(pod(generation(0)), pod(generation(0))), true},
		{"labels: the same", handler.LabelsChanged, update(pod(labels(x)), pod(labels(map[string]string{"x": "x"}), version("2"))), false},
		{"labels: none and nil", handler.LabelsChanged, update(pod(labels(nil)), pod(labels(map[string]string{}))), false},
		{"labels: one gone", handler.LabelsChanged, update(pod(labels(x)), pod()), true},
		{"labels: annotation", handler.LabelsChanged, update(pod(), pod(annotations(x))), false},
		{"annotations: the same", handler.AnnotationsChanged, update(pod(annotations(x)), pod(annotations(x), labels(x))), false},
		{"annotations: one more", handler.AnnotationsChanged, update(pod(), pod(annotations(x))), true},
		{"annotations: a trace", handler.AnnotationsChanged, update(pod(), pod(annotations(map[string]string{"tracing.k8s.io/traceparent": "1"}))), false},
		{"version: a resync", handler.ResourceVersionChanged, update(pod(), pod()), false},
		{"version: a change", handler.ResourceVersionChanged, update(pod(), pod(version("2"))), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkit.Equal(t, c.predicate.Keep(c.event), c.keep)
			before, _ := c.event.Old.(*corev1.Pod)
			for what, e := range map[string]handler.Event{
				"a create":          {Op: handler.Create, New: c.event.New},
				"a delete":          {Op: handler.Delete, Old: c.event.Old},
				"a new uid":         update(before, pod(uid("2"), generation(before.Generation))),
				"a new uid, merged": {Op: handler.Update, Old: pod(uid("0")), New: c.event.New},
			} {
				testkit.Equal(t, c.predicate.Keep(e), true, fmt.Sprintf("%s is dropped", what))
			}
		})
	}
}

func TestFilterNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range []handler.Predicate{
		handler.GenerationChanged, handler.LabelsChanged, handler.AnnotationsChanged, handler.ResourceVersionChanged,
		handler.Where(func(_, _ *corev1.Pod) bool { return true }),
	} {
		name := fmt.Sprintf("%T is called %q", f, f)
		testkit.NotEqual(t, f.String(), "", name)
		testkit.Equal(t, seen[f.String()], false, name)
		seen[f.String()] = true
	}
}

func TestWhere(t *testing.T) {
	var before, after *corev1.Pod
	f := handler.Where(func(o, n *corev1.Pod) bool {
		before, after = o, n
		return n != nil
	})
	a, b := pod(), pod(version("2"))
	if !f.Keep(update(a, b)) || before != a || after != b {
		t.Errorf("update: %v, %v", before, after)
	}
	if !f.Keep(handler.Event{Op: handler.Create, New: b}) || before != nil || after != b {
		t.Errorf("create: %v, %v", before, after)
	}
	if f.Keep(handler.Event{Op: handler.Delete, Old: a}) || before != a || after != nil {
		t.Errorf("delete: %v, %v", before, after)
	}
}

// site is a kind.
type site struct {
	namespaced bool
	err        error
}

func (site) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Site"}
}

func (s site) Namespaced() (bool, error) { return s.namespaced, s.err }

func TestKeys(t *testing.T) {
	sites := handler.Owner(site{namespaced: true})
	byLabel := handler.Map(func(_ context.Context, p *corev1.Pod) ([]types.NamespacedName, error) {
		if p.Labels["site"] == "" {
			return nil, nil
		}
		return []types.NamespacedName{key(p.Namespace, p.Labels["site"])}, nil
	})
	of := func(name string) *corev1.Pod { return pod(owned("example.com/v1", "Site", name)) }
	label := func(name string) *corev1.Pod { return pod(labels(map[string]string{"site": name})) }
	for _, c := range []struct {
		name    string
		handler handler.Handler[types.NamespacedName]
		event   handler.Event
		want    []types.NamespacedName
	}{
		{"self", handler.Self(), handler.Event{Op: handler.Create, New: pod()}, []types.NamespacedName{key("default", "a")}},
		{"self, deleted", handler.Self(), handler.Event{Op: handler.Delete, Old: pod()}, []types.NamespacedName{key("default", "a")}},
		{"owner", sites, handler.Event{Op: handler.Create, New: of("x")}, []types.NamespacedName{key("default", "x")}},
		{"owner, deleted", sites, handler.Event{Op: handler.Delete, Old: of("x")}, []types.NamespacedName{key("default", "x")}},
		{"owner, the same", sites, update(of("x"), of("x")), []types.NamespacedName{key("default", "x")}},
		{"owner, changed hands", sites, update(of("x"), of("y")), []types.NamespacedName{key("default", "x"), key("default", "y")}},
		{"owner, orphaned", sites, update(of("x"), pod()), []types.NamespacedName{key("default", "x")}},
		{"owner, adopted", sites, update(pod(), of("x")), []types.NamespacedName{key("default", "x")}},
		{"owner, other version", sites, handler.Event{New: pod(owned("example.com/v2", "Site", "x"))}, []types.NamespacedName{key("default", "x")}},
		{"owner, other group", sites, handler.Event{New: pod(owned("other.com/v1", "Site", "x"))}, nil},
		{"owner, other kind", sites, handler.Event{New: pod(owned("example.com/v1", "Page", "x"))}, nil},
		{"owner, broken version", sites, handler.Event{New: pod(owned("a/b/c", "Site", "x"))}, nil},
		{"owner, no controller", sites, handler.Event{New: pod()}, nil},
		{"owner, cluster-scoped", handler.Owner(site{}), handler.Event{New: of("x")}, []types.NamespacedName{key("", "x")}},
		{"owner, another one does not control", sites, handler.Event{New: pod(others("example.com/v1", "x"))}, nil},
		{"any owner", handler.AnyOwner(site{namespaced: true}), handler.Event{New: of("x")}, []types.NamespacedName{key("default", "not-the-controller"), key("default", "x")}},
		{"any owner, several versions", handler.AnyOwner(site{}), handler.Event{New: pod(others("example.com/v1", "x"), others("example.com/v2", "y"), others("other.com/v2", "z"))}, []types.NamespacedName{key("", "x"), key("", "y")}},
		{"any owner, one gone", handler.AnyOwner(site{}), update(pod(others("example.com/v1", "x"), others("example.com/v1", "y")), pod(others("example.com/v1", "y"))), []types.NamespacedName{key("", "x"), key("", "y")}},
		{"owner, nothing to ask", handler.Owner(site{err: errors.New("down")}), handler.Event{New: pod()}, nil},
		{"map", byLabel, handler.Event{Op: handler.Create, New: label("x")}, []types.NamespacedName{key("default", "x")}},
		{"map, a reference moved", byLabel, update(label("x"), label("y")), []types.NamespacedName{key("default", "x"), key("default", "y")}},
		{"map, a reference dropped", byLabel, update(label("x"), pod()), []types.NamespacedName{key("default", "x")}},
		{"map, the same", byLabel, update(label("x"), label("x")), []types.NamespacedName{key("default", "x")}},
		{"map, nothing", byLabel, update(pod(), pod()), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.handler.Keys(t.Context(), c.event)
			testkit.Equal(t, err, nil)
			testkit.DeepEqual(t, got, c.want)
		})
	}
}

// TestIdentity: only handlers by whose keys objects go themselves say so.
func TestIdentity(t *testing.T) {
	self, ok := handler.Self().(handler.Identity[types.NamespacedName])
	if !ok {
		t.Fatal("Self is none")
	}
	if got, ok := self.Identity(pod()); !ok || got != key("default", "a") {
		t.Errorf("got %v, %v", got, ok)
	}
	for _, other := range []any{handler.Owner(site{}), handler.Map(func(context.Context, *corev1.Pod) ([]types.NamespacedName, error) { return nil, nil })} {
		_, ok := other.(handler.Identity[types.NamespacedName])
		testkit.Equal(t, ok, false, fmt.Sprintf("%T is one", other))
	}
}

func TestKeysErrors(t *testing.T) {
	down := errors.New("down")
	owner := handler.Owner(site{err: down})
	if keys, err := owner.Keys(t.Context(), handler.Event{New: pod(owned("example.com/v1", "Site", "x"))}); !errors.Is(err, down) || keys != nil || !strings.Contains(err.Error(), "default/a") {
		t.Errorf("got %v, %v", keys, err)
	}
	m := handler.Map(func(_ context.Context, p *corev1.Pod) ([]string, error) {
		if p.ResourceVersion == "2" {
			return nil, down
		}
		return []string{"x"}, nil
	})
	if keys, err := m.Keys(t.Context(), update(pod(), pod(version("2")))); !errors.Is(err, down) || keys != nil {
		t.Errorf("got %v, %v", keys, err)
	}
}

type typeChecker interface {
	CheckType(example handler.Object) error
}

func TestCheckType(t *testing.T) {
	m := handler.Map(func(context.Context, *corev1.Pod) ([]string, error) { return nil, nil })
	w := handler.Where(func(_, _ *corev1.Pod) bool { return true })
	f := handler.Funcs[*corev1.Pod, string]{Delete: func(context.Context, *corev1.Pod) ([]string, error) { return nil, nil }}
	for _, part := range []any{m, w, f, handler.And(w), handler.Or(handler.LabelsChanged, w), handler.Not(w), handler.Named("w", w), handler.Not(handler.And(w))} {
		c, ok := part.(typeChecker)
		if !ok {
			t.Fatalf("%T does not check", part)
		}
		testkit.Equal(t, c.CheckType((*corev1.Pod)(nil)), nil)
		err := c.CheckType((*corev1.Secret)(nil))
		testkit.ErrorContains(t, err, "*v1.Pod")
		testkit.ErrorContains(t, err, "*v1.Secret")
	}
	for _, nothing := range []any{
		handler.Owner(nil), handler.Owner((*site)(nil)), handler.Where[*corev1.Pod](nil),
		handler.Funcs[*corev1.Pod, string]{}, handler.And(), handler.Or(), handler.Or(handler.LabelsChanged, nil), handler.Not(nil), handler.Named("", handler.LabelsChanged), handler.Named("nothing", nil),
	} {
		if c, ok := nothing.(typeChecker); !ok || c.CheckType(pod()) == nil {
			t.Errorf("a %T of nothing passes", nothing)
		}
	}
	testkit.NotEqual(t, testkit.Err(m.Keys(t.Context(), handler.Event{New: &corev1.Secret{}})), nil, "a secret was mapped as a pod")
}

func TestEvent(t *testing.T) {
	if e := update(pod(), pod(version("2"))); e.Object().GetResourceVersion() != "2" || e.Key() != key("default", "a") {
		t.Errorf("got %v, %v", e.Object(), e.Key())
	}
	for op, want := range map[handler.Op]string{handler.Create: "create", handler.Update: "update", handler.Delete: "delete"} {
		testkit.Equal(t, string(op), want)
	}
}
