// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

func TestReconcile_ManyAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var all []client.ApplyConfiguration
		for i := range 40 {
			all = append(all, children.With(configMap(fmt.Sprint("c", i), "1"), children.After(slices.Clone(all)...)))
		}
		testkit.Equal(t, w.want("a", all...).Ready(), true)
	})
}

// doomed is want for an owner with the finalizer of the children.
func (w *world) doomed(owner string, desired ...client.ApplyConfiguration) {
	w.api.Put(owners, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: owner, Finalizers: []string{finish}}})
	w.want(owner, desired...)
}

func TestDelete_IgnoresACircle(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.doomed("a", configMap("one", "1"), configMap("two", "1"))
		w.mu.Lock()
		w.desired["a"] = []client.ApplyConfiguration{children.With(configMap("one", "1"), children.After(configMap("two", ""))), children.With(configMap("two", "1"), children.After(configMap("one", "")))}
		w.mu.Unlock()
		w.deleteOwner("a")
		testkit.Equal(t, w.object(owners, "a"), nil, w.states("a"))
	})
}

// edit changes an object as another client.
func (w *world) edit(in sim.Resource, name string, f func(u *unstructured.Unstructured)) {
	u := w.object(in, name)
	f(u)
	w.api.Put(in, u)
	w.idle("")
}

func hold(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/hold"}) }

func TestDelete_WaitsForChildrenBehindAMissingOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		one, two := configMap("one", "1"), configMap("two", "1")
		desired := []client.ApplyConfiguration{one, children.With(two, children.After(one)), children.With(configMap("three", "1"), children.After(two))}
		w.doomed("a", desired...)
		w.edit(sim.ConfigMaps, "three", hold)
		w.stop()
		w.api.Remove(sim.ConfigMaps, "default", "two")
		w.deleteOwner("a")
		w.start()
		w.idle("a")
		if w.object(sim.ConfigMaps, "three").GetDeletionTimestamp() == nil {
			t.Fatalf("not in deletion: %s", w.states("a"))
		}
		testkit.NotEqual(t, w.object(sim.ConfigMaps, "one"), nil, w.states("a"))
		w.api.Remove(sim.ConfigMaps, "default", "three")
		w.idle("a")
		testkit.Equal(t, w.object(owners, "a"), nil, w.states("a"))
	})
}

func TestDelete_DeletesADesiredChildWithoutTheAnnotation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		one := configMap("one", "1")
		desired := []client.ApplyConfiguration{one, children.With(configMap("two", "1"), children.After(one))}
		w.doomed("a", desired...)
		w.stop()
		cm := w.object(sim.ConfigMaps, "two")
		cm.SetAnnotations(nil)
		w.api.Put(sim.ConfigMaps, cm)
		w.deleteOwner("a")
		w.start()
		w.idle("a")
		testkit.Equal(t, w.object(owners, "a"), nil, w.states("a"))
	})
}

// wide is an operator without a controller. Its owners are ClusterRoles, and its handles
// unstructured.
type wide struct {
	api    *sim.Server
	set    *children.Set[*rbacv1.ClusterRole]
	all    *cache.Handle[*rbacv1.ClusterRole]
	owner  *rbacv1.ClusterRole
	stop   func()
	widget sim.Resource
}

func newWide(t *testing.T) *wide {
	w := &wide{api: sim.New(t, scheme.Scheme), widget: sim.Resource{Group: "example.com", Version: "v1", Kind: "Widget", Name: "widgets", Namespaced: true}}
	w.api.Put(clusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "owner"}})
	mgr := manager.New(w.api.Config(), manager.Options{Name: "wide", Scheme: scheme.Scheme, Logger: slog.New(slog.DiscardHandler)})
	all := cache.For[*rbacv1.ClusterRole](mgr.Cache())
	w.all = all
	configMaps := cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
	secrets := cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")})
	bindings := cache.For[*rbacv1.RoleBinding](mgr.Cache())
	widgets := cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Run(ctx) }()
	w.stop = func() {
		cancel()
		testkit.Equal(t, <-done, nil)
	}
	var err error
	w.set, err = children.New(all, mgr.Client(), children.Of(configMaps), children.Of(widgets), children.Of(bindings), children.Of(secrets))
	testkit.NoError(t, err)
	time.Sleep(time.Minute)
	w.owner, err = all.Get(ctx, types.NamespacedName{Name: "owner"})
	testkit.NoError(t, err)
	return w
}

// settle waits until the caches show all changes.
func (*wide) settle() { time.Sleep(time.Minute) }

func widget(name string) client.ApplyConfiguration {
	return client.UnstructuredConfiguration(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "default"}}})
}

func inWideBubble(t *testing.T, f func(t *testing.T, w *wide)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWide(t)
		defer func() { w.stop() }()
		f(t, w)
	})
}

var clusterRoles = sim.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "clusterroles"}

func TestDelete_AKindThatIsNotServedHasNoChildren(t *testing.T) {
	inWideBubble(t, func(t *testing.T, w *wide) {
		testkit.NotEqual(t, testkit.Err(w.set.Reconcile(t.Context(), w.owner, widget("w"), configMap("one", "1"))), nil, "no error for a kind that is not served")
		time.Sleep(time.Minute)
		if result, err := w.set.Delete(t.Context(), w.owner, widget("w"), configMap("one", "1")); !finalizer.IsWaiting(err) {
			t.Errorf("%v:\n%s", err, result)
		}
		time.Sleep(time.Minute)
		if result, err := w.set.Delete(t.Context(), w.owner, widget("w"), configMap("one", "1")); err != nil {
			t.Errorf("%v:\n%s", err, result)
		}
	})
}

func TestReconcile_AnotherControllersObjectIsNotUnchanged(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", configMap("one", "1"))
		w.want("b")
		b := w.object(owners, "b")
		w.edit(sim.ConfigMaps, "one", func(u *unstructured.Unstructured) {
			u.SetOwnerReferences(append(u.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: "b", UID: b.GetUID()}))
		})
		w.want("b", configMap("one", "1"))
		testkit.ErrorContains(t, w.err("b"), "belongs to the ServiceAccount a", w.states("b"))
	})
}

func TestReconcile_KeepDriftRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		keep := children.With(configMap("one", "1"), children.KeepDrift())
		w.want("a", keep)
		w.edit(sim.ConfigMaps, "one", func(u *unstructured.Unstructured) { u.Object["data"] = map[string]any{"key": "drift"} })
		w.want("a", configMap("one", "1"))
		testkit.Equal(t, w.value("one"), "1", w.states("a"))
	})
}

// TestReconcile_RestoresZeros: a removed false is not the same as false.
func TestReconcile_RestoresZeros(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d := rollout("one", "x")
		d.Spec.Template.Spec.WithAutomountServiceAccountToken(false)
		w.want("a", d)
		path := []string{"spec", "template", "spec", "automountServiceAccountToken"}
		w.edit(sim.Deployments, "one", func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, path...) })
		if v, ok, _ := unstructured.NestedBool(w.object(sim.Deployments, "one").Object, path...); !ok || v {
			t.Errorf("the field is %t, set %t: %s", v, ok, w.states("a"))
		}
	})
}

// TestK1_StoredFormsCostOneApply: values that the API server stores in another form, or that
// Reconcile completes, cost no writes later.
func TestK1_StoredFormsCostOneApply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{
			"name": "d", "creationTimestamp": nil, "labels": map[string]any{}, "finalizers": []any{"example.com/x"}, "annotations": map[string]any{children.AppliedAnnotation: "mine"},
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "name": "other", "uid": "other"}},
		}, "spec": map[string]any{
			"replicas": 0.0, "paused": false, "minReadySeconds": nil,
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"creationTimestamp": nil, "labels": map[string]any{"a": "b"}}, "spec": map[string]any{
				"hostNetwork": false, "volumes": []any{map[string]any{"name": "v", "emptyDir": map[string]any{}}},
				"containers": []any{map[string]any{"name": "main", "image": "x", "command": []any{}, "env": []any{map[string]any{"name": "e", "value": ""}},
					"ports": []any{map[string]any{"containerPort": int64(80)}}, "resources": map[string]any{"limits": map[string]any{"cpu": "1000m", "memory": "1024Mi"}, "requests": map[string]any{}}}},
			}},
		}}}
		w.api.Put(owners, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", UID: "other"}})
		w.want("a", client.UnstructuredConfiguration(u), service("s"))
		testkit.NoError(t, w.err("a"))
		n := w.writes()
		w.touch("a")
		w.rollOut("d")
		w.touch("a")
		testkit.Equal(t, w.writes(), n, w.states("a"))
		w.restart()
		w.touch("a")
		w.rollOut("d")
		w.touch("a")
		testkit.AtMost(t, w.writes(), n+1, w.states("a"))
		if d := w.object(sim.Deployments, "d"); len(d.GetOwnerReferences()) != 2 || !slices.Equal(d.GetFinalizers(), []string{"example.com/x"}) {
			t.Errorf("owners %v, finalizers %v", d.GetOwnerReferences(), d.GetFinalizers())
		}
	})
}

// TestReconcile_RecreatesOnlyForImmutableFields, whatever the names and values are.
func TestReconcile_RecreatesOnlyForImmutableFields(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", children.With(service("immutable"), children.Recreate()))
		uid := w.object(services, "immutable").GetUID()
		w.want("a", children.With(coreac.Service("immutable", "").WithSpec(coreac.ServiceSpec().WithPorts(coreac.ServicePort().WithPort(-1))), children.Recreate()))
		if u := w.object(services, "immutable"); u == nil || u.GetUID() != uid {
			t.Errorf("deleted because of an invalid value: %q", w.seen)
		}
	})
}

// TestReconcile_RecreatesARoleBinding: the text about its roleRef differs from other ones.
func TestReconcile_RecreatesARoleBinding(t *testing.T) {
	inWideBubble(t, func(t *testing.T, w *wide) {
		for _, role := range []string{"one", "two", "two"} { // created, deleted, created
			binding := rbacac.RoleBinding("b", "default").WithRoleRef(rbacac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(role))
			if result, err := w.set.Reconcile(t.Context(), w.owner, children.With(binding, children.Recreate())); err != nil {
				t.Errorf("%v:\n%s", err, result)
			}
			time.Sleep(time.Minute)
		}
		b := w.api.Object(roleBindings, "default", "b")
		role, _, _ := unstructured.NestedString(b.Object, "roleRef", "name")
		testkit.Equal(t, role, "two")
	})
}

var roleBindings = sim.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding", Name: "rolebindings", Namespaced: true}

func TestReconcile_RecreateWaitsForFinalizers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", rollout("one", "x"))
		w.edit(sim.Deployments, "one", hold)
		n := w.writes()
		w.want("a", children.With(rollout("one", "y"), children.Recreate()))
		time.Sleep(time.Hour)
		testkit.Equal(t, w.writes()-n, 2, w.states("a"))
		testkit.Equal(t, w.idle("a").Reason(), "Deployment one waits for the end of its deletion")
		w.api.Remove(sim.Deployments, "default", "one")
		w.idle("a")
		app, _, _ := unstructured.NestedString(w.object(sim.Deployments, "one").Object, "spec", "selector", "matchLabels", "app")
		testkit.Equal(t, app, "y", "not created again")
	})
}

func TestReconcile_RefusesAnAnnotationThatIsNoString(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
			"name": "one", "annotations": map[string]any{"a": int64(1), "b": "stays"}}}}
		w.want("a", client.UnstructuredConfiguration(u))
		testkit.NotEqual(t, w.err("a"), nil, w.states("a"))
	})
}

// TestReconcile_RemovesFields that are desired no longer, labels and lists among them.
func TestReconcile_RemovesFields(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", configMap("one", "1").WithData(map[string]string{"gone": "x"}).WithLabels(map[string]string{"l": "v"}).WithFinalizers("example.com/x"))
		w.restart()
		w.want("a", configMap("one", "1"))
		cm := w.object(sim.ConfigMaps, "one")
		testkit.Len(t, cm.Object["data"].(map[string]any), 1, w.states("a"))
		testkit.Len(t, cm.GetLabels(), 0)
		testkit.Len(t, cm.GetFinalizers(), 0)
	})
}

// TestReconcile_OwnerRecreated: children of an owner's predecessor are left alone until they are
// deleted.
func TestReconcile_OwnerRecreated(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", configMap("one", "1"))
		w.stop()
		cm := w.object(sim.ConfigMaps, "one")
		w.api.Remove(owners, "default", "a")
		w.start()
		if w.object(sim.ConfigMaps, "one") == nil {
			w.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", OwnerReferences: cm.GetOwnerReferences(), Annotations: cm.GetAnnotations()}, Data: map[string]string{"key": "1"}})
		}
		w.want("a", configMap("one", "2"))
		if w.object(sim.ConfigMaps, "one") == nil || w.value("one") == "2" && w.object(sim.ConfigMaps, "one").GetUID() == cm.GetUID() {
			t.Errorf("the old child is changed: %s", w.states("a"))
		}
		if w.value("one") == "1" {
			w.api.Remove(sim.ConfigMaps, "default", "one")
			time.Sleep(time.Hour)
			testkit.Equal(t, w.value("one"), "2", w.states("a"))
		}
	})
}

// TestK2_CreatesOverNoForeignValues: an object that another client creates between the read
// and the apply keeps its values.
func TestK2_CreatesOverNoForeignValues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var once sync.Once
		w.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "apply" {
				once.Do(func() {
					w.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Data: map[string]string{"key": "foreign"}})
				})
			}
			return nil, nil //nolint:nilnil // goes on
		})
		w.want("a", configMap("one", "1"))
		cm := w.object(sim.ConfigMaps, "one")
		testkit.Equal(t, w.value("one"), "foreign", w.states("a"))
		testkit.Len(t, cm.GetOwnerReferences(), 0)
		testkit.ErrorContains(t, w.err("a"), "has no controlling owner")
	})
}

func TestReconcile_AfterANilPointer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", children.With(configMap("one", "1"), children.After((*coreac.ConfigMapApplyConfiguration)(nil))))
		testkit.ErrorContains(t, w.err("a"), "children.After: a child: the desired child is nil")
	})
}

func TestReconcile_AfterASkippedChild(t *testing.T) {
	inWideBubble(t, func(t *testing.T, w *wide) {
		optional := children.With(widget("w"), children.Optional())
		result, err := w.set.Reconcile(t.Context(), w.owner, optional, children.With(configMap("one", "1"), children.After(optional)))
		testkit.NoError(t, err)
		testkit.Equal(t, result.Ready(), true)
		testkit.NotEqual(t, w.api.Object(sim.ConfigMaps, "default", "one"), nil)
		w.api.Serve(w.widget)
		time.Sleep(time.Minute)
		result, err = w.set.Reconcile(t.Context(), w.owner, optional, children.With(configMap("one", "1"), children.After(optional)))
		testkit.NoError(t, err, "once served", result)
		testkit.NotEqual(t, w.api.Object(w.widget, "default", "w"), nil, "once served")
		time.Sleep(time.Minute)
		result, err = w.set.Reconcile(t.Context(), w.owner)
		testkit.NoError(t, err, result)
		testkit.Equal(t, w.api.Object(w.widget, "default", "w"), nil)
		testkit.Equal(t, w.api.Object(sim.ConfigMaps, "default", "one"), nil)
	})
}

// TestReconcile_AnAmbiguousAfterFails: it names two children of a cluster-scoped owner.
func TestReconcile_AnAmbiguousAfterFails(t *testing.T) {
	inWideBubble(t, func(t *testing.T, w *wide) {
		result, err := w.set.Reconcile(t.Context(), w.owner, configMap("one", "1"), coreac.ConfigMap("one", "kube-public"), children.With(configMap("two", "1"), children.After(coreac.ConfigMap("one", ""))))
		if err == nil || !strings.Contains(err.Error(), "set its namespace") {
			t.Errorf("%v:\n%s", err, result)
		}
	})
}

// TestReconcile_TwoNamespaces: the children of a cluster-scoped owner may have common names.
func TestReconcile_TwoNamespaces(t *testing.T) {
	inWideBubble(t, func(t *testing.T, w *wide) {
		other := func(value string) client.ApplyConfiguration {
			return coreac.ConfigMap("one", "kube-public").WithData(map[string]string{"key": value})
		}
		for _, c := range []struct {
			desired             []client.ApplyConfiguration
			here, there, errors bool
		}{
			{[]client.ApplyConfiguration{configMap("one", "1"), other("1")}, true, true, false},
			{[]client.ApplyConfiguration{configMap("one", "1"), children.With(other("1"), children.After(configMap("one", "1")))}, true, true, false},
			{[]client.ApplyConfiguration{other("1")}, false, true, false},
			{[]client.ApplyConfiguration{configMap("one", "1")}, true, false, false},
			// Without a namespace nothing is pruned.
			{[]client.ApplyConfiguration{coreac.ConfigMap("one", "")}, true, false, true},
		} {
			result, err := w.set.Reconcile(t.Context(), w.owner, c.desired...)
			testkit.Equal(t, err != nil, c.errors, err, result)
			time.Sleep(time.Minute)
			if here, there := w.api.Object(sim.ConfigMaps, "default", "one") != nil, w.api.Object(sim.ConfigMaps, "kube-public", "one") != nil; here != c.here || there != c.there {
				t.Errorf("here %t, there %t, want %t, %t:\n%s", here, there, c.here, c.there, result)
			}
		}
	})
}

// TestReconcile_PanicsInItsOwnGoroutine, where the controller recovers.
func TestReconcile_PanicsInItsOwnGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var once sync.Once
		w.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "apply" {
				once.Do(func() { panic("attack") })
			}
			return nil, nil //nolint:nilnil // goes on
		})
		w.want("a", configMap("one", "1"))
		time.Sleep(time.Hour) // the backoff
		testkit.Equal(t, w.value("one"), "1", w.states("a"))
	})
}

func TestResult_ReasonReadsWell(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, desired := range []client.ApplyConfiguration{nil, coreac.ConfigMap("", "default"), coreac.Secret("s", "")} {
			if got := w.want("a", desired).Reason(); strings.Contains(got, "  ") || strings.HasPrefix(got, " ") {
				t.Errorf("reason %q", got)
			}
		}
		w.want("a", rollout("one", "x"))
		w.doomed("b", configMap("b", "1"))
		w.edit(sim.ConfigMaps, "b", hold)
		w.deleteOwner("b")
		if err := w.err("b"); err == nil || strings.Contains(err.Error(), "1 children") {
			t.Errorf("error %v", err)
		}
	})
}

// TestReconcile_Storm: the edits of TestRandomEdits, while requests fail, answers are lost, and
// events come late.
func TestReconcile_Storm(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				r := newRandom(w, seed)
				var mu sync.Mutex
				dice := rand.New(rand.NewPCG(seed, 3))
				chance := func(n int) func(*fault.Request) bool {
					return func(q *fault.Request) bool {
						mu.Lock()
						defer mu.Unlock()
						return q.Resource != "leases" && dice.IntN(n) == 0
					}
				}
				writes := []string{"patch", "delete"}
				for _, rule := range []fault.Rule{
					{Match: fault.Match{Verbs: writes, Func: chance(8)}, Lose: true},
					{Match: fault.Match{Verbs: writes, Func: chance(8)}, Cut: true},
					{Match: fault.Match{Verbs: writes, Func: chance(8)}, Refuse: apierrors.NewTooManyRequests("slow down", 1)},
					{Match: fault.Match{Verbs: writes, Func: chance(8)}, Refuse: apierrors.NewInternalError(errors.New("storm"))},
					{Match: fault.Match{Verbs: writes, Func: chance(8)}, Refuse: apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("storm"))},
					{Match: fault.Match{Verbs: []string{"get"}, Func: chance(8)}, Refuse: apierrors.NewInternalError(errors.New("storm"))},
				} {
					w.api.Add(rule)
				}
				for n := range 200 {
					r.edit(n)
					switch r.IntN(40) {
					case 0, 1, 2, 3:
						time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					case 4:
						w.api.Lag(time.Duration(r.IntN(500)) * time.Millisecond)
					case 5:
						w.api.CutWatches()
					case 6:
						w.restart()
					}
				}
				time.Sleep(6 * time.Hour) // the storm goes on
				r.check(t)
				n := w.writes()
				time.Sleep(time.Hour)
				synctest.Wait()
				testkit.AtMost(t, w.writes()-n, 200)
			})
		})
	}
}

// TestK3_DoesNotPruneWhatAnotherOwnerHasTaken, also if the cache does not know it yet.
func TestK3_DoesNotPruneWhatAnotherOwnerHasTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", configMap("one", "1"))
		w.want("b", configMap("one", "2"))
		uid := w.object(sim.ConfigMaps, "one").GetUID()
		b := w.object(owners, "b")
		w.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "delete" {
				w.api.Intercept(nil)
				cm := w.object(sim.ConfigMaps, "one")
				cm.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(b, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))})
				w.api.Put(sim.ConfigMaps, cm)
			}
			return nil, nil //nolint:nilnil // goes on
		})
		w.want("a")
		time.Sleep(time.Hour)
		if cm := w.object(sim.ConfigMaps, "one"); cm == nil || cm.GetUID() != uid {
			t.Errorf("deleted: %s, %s", w.states("a"), w.states("b"))
		}
		testkit.Equal(t, w.err("a"), nil)
	})
}

// TestDelete_Storm: each child is deleted once those after it are gone, although requests fail,
// answers are lost, children are held and the operator restarts.
func TestDelete_Storm(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				dice := rand.New(rand.NewPCG(seed, 4))
				var all []client.ApplyConfiguration
				for i := range 6 {
					c := client.ApplyConfiguration(configMap(fmt.Sprint("c", i), "1"))
					if i > 0 {
						c = children.With(c, children.After(all[dice.IntN(i)], all[i-1]))
					}
					all = append(all, c)
				}
				w.doomed("a", all[:5]...)
				for i := range 5 {
					if dice.IntN(2) == 0 {
						w.edit(sim.ConfigMaps, fmt.Sprint("c", i), hold)
					}
				}
				w.mu.Lock()
				w.desired["a"] = all // the last is new
				w.mu.Unlock()
				var mu sync.Mutex
				chance := func(q *fault.Request) bool {
					mu.Lock()
					defer mu.Unlock()
					return q.Resource == "configmaps" && dice.IntN(6) == 0
				}
				for _, rule := range []fault.Rule{{Lose: true}, {Cut: true}, {Refuse: apierrors.NewTooManyRequests("slow down", 1)}, {Refuse: apierrors.NewInternalError(errors.New("storm"))}} {
					rule.Match = fault.Match{Verbs: []string{"delete"}, Func: chance}
					w.api.Add(rule)
				}
				w.api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb == "delete" && r.Resource.Resource == "configmaps" {
						for i := int(r.Name[1]-'0') + 1; i < 6; i++ {
							testkit.Equal(t, w.object(sim.ConfigMaps, fmt.Sprint("c", i)), nil, fmt.Sprintf("%s is deleted before c%d is gone", r.Name, i))
						}
					}
					return nil, nil //nolint:nilnil // goes on
				})
				w.stop()
				w.api.Lag(200 * time.Millisecond)
				w.deleteOwner("a")
				w.start()
				for w.object(owners, "a") != nil && !t.Failed() {
					mu.Lock()
					n, name := dice.IntN(10), fmt.Sprint("c", dice.IntN(6))
					mu.Unlock()
					time.Sleep(time.Duration(n) * time.Second)
					if cm := w.object(sim.ConfigMaps, name); cm != nil && cm.GetDeletionTimestamp() != nil {
						w.api.Remove(sim.ConfigMaps, "default", name)
					}
					if n == 0 {
						w.restart()
					}
				}
				testkit.Equal(t, w.api.Stored(sim.ConfigMaps), 0)
			})
		})
	}
}

// TestReconcile_StringData of a Secret is written once.
func TestReconcile_StringData(t *testing.T) {
	inWideBubble(t, func(t *testing.T, w *wide) {
		for _, value := range []string{"1", "1", "2", "2"} {
			result, err := w.set.Reconcile(t.Context(), w.owner, coreac.Secret("s", "default").WithStringData(map[string]string{"key": value}))
			testkit.NoError(t, err, value)
			testkit.Equal(t, result.Ready(), true, value)
			time.Sleep(time.Minute)
		}
		testkit.Equal(t, w.api.Count("apply", sim.Secrets), 2, "applies")
		s := w.api.Object(sim.Secrets, "default", "s")
		got, _, _ := unstructured.NestedString(s.Object, "data", "key")
		testkit.Equal(t, got, "Mg==", "the value")
		s.Object["data"] = map[string]any{"key": "ZHJpZnQ="}
		w.api.Put(sim.Secrets, s)
		time.Sleep(time.Minute)
		result, err := w.set.Reconcile(t.Context(), w.owner, coreac.Secret("s", "default").WithStringData(map[string]string{"key": "2"}))
		if got, _, _ := unstructured.NestedString(w.api.Object(sim.Secrets, "default", "s").Object, "data", "key"); got != "Mg==" {
			t.Errorf("the value after a drift is %q, %v: %s", got, err, result)
		}
	})
}

// TestReconcile_DoesNotRecreateInALoop: an immutable field that a webhook changes at the creation
// would differ again.
func TestReconcile_DoesNotRecreateInALoop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch"}}, Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
			body, err := io.ReadAll(h.Body)
			if err != nil {
				return nil, err
			}
			if strings.Count(string(body), `"uid"`) == 1 { // the owner's only: it creates
				body = []byte(strings.ReplaceAll(string(body), `"app":"x"`, `"app":"z"`))
			}
			h.Body = io.NopCloser(bytes.NewReader(body))
			return next.RoundTrip(h)
		}})
		w.want("a", children.With(rollout("one", "x"), children.Recreate()))
		// As its controller does.
		w.edit(sim.Deployments, "one", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "1", "metadata", "annotations", "deployment.kubernetes.io/revision")
		})
		time.Sleep(time.Hour)
		testkit.Equal(t, w.api.Count("delete", sim.Deployments), 0, w.states("a"))
		testkit.ErrorContains(t, w.err("a"), "immutable")
	})
}

// TestReconcile_PathsAreThoseThatChanged, without those that the API server stores in another form.
func TestReconcile_PathsAreThoseThatChanged(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, image := range []string{"one", "two"} {
			d := rollout("d", "x")
			d.Spec.Template.Spec.WithHostNetwork(false)
			d.Spec.Template.Spec.Containers[0].WithImage(image).WithResources(coreac.ResourceRequirements().WithLimits(corev1.ResourceList{"cpu": resource.MustParse("1000m"), "memory": resource.MustParse("1.5Gi")}))
			w.want("a", d)
		}
		testkit.Equal(t, w.seen[len(w.seen)-1], "changed Deployment d (.spec.template.spec.containers[0].image)", "changes")
	})
}
