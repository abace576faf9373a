// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestK1_SendsWhatDiffers: children are created, not sent again, also after a restart,
// changed, and pruned.
func TestK1_SendsWhatDiffers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", configMap("one", "1"), service("two"), rollout("three", "x"))
		testkit.NoError(t, w.err("a"))
		n := w.writes()
		testkit.Equal(t, n, 3, "writes for three children")
		w.touch("a")
		w.restart()
		w.touch("a")
		testkit.Equal(t, w.writes(), n, w.states("a"))
		w.want("a", configMap("one", "2"), rollout("three", "x"))
		testkit.Equal(t, w.object(services, "two"), nil, "the Service is not pruned")
		testkit.Equal(t, w.value("one"), "2", "the ConfigMap has")
		testkit.Equal(t, w.writes(), n+2)
		w.want("a")
		testkit.Equal(t, w.object(sim.ConfigMaps, "one"), nil, w.states("a"))
		testkit.Equal(t, w.object(sim.Deployments, "three"), nil, "children are left")
	})
}

// TestWatch_IsNotForgottenSilently: without it, the first Reconcile fails and names the remedy.
// With it, a change of a child makes its owner due: see the tests of drift.
func TestWatch_IsNotForgottenSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: sim.New(t, scheme.Scheme), unwatched: true}
		w.init()
		defer func() { w.stop() }()
		w.want("a", configMap("one", "1"))
		if err := w.err("a"); err == nil || !strings.Contains(err.Error(), `the controller "owners" does not declare ConfigMap.v1; `) ||
			!strings.Contains(err.Error(), "call Set.Watch with the controller") {
			t.Errorf("error %v", err)
		}
		testkit.Equal(t, w.object(sim.ConfigMaps, "one"), nil, "the child was applied")
	})
}

// TestK1_AMissingAnnotationCostsOneApply of its child, after a restart.
func TestK1_AMissingAnnotationCostsOneApply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", configMap("one", "1"), configMap("two", "2"))
		w.stop()
		cm := w.object(sim.ConfigMaps, "one")
		cm.SetAnnotations(nil)
		w.api.Put(sim.ConfigMaps, cm)
		n := w.writes()
		w.start()
		w.touch("a")
		w.touch("a")
		testkit.Equal(t, w.writes(), n+1, w.states("a"))
		testkit.NotEqual(t, w.object(sim.ConfigMaps, "one").GetAnnotations()[children.AppliedAnnotation], "", "the annotation is still missing")
	})
}

// TestReconcile_Drift: changes by others of desired fields are put back, or stay with KeepDrift
// until the desired fields change. Other fields are left alone.
func TestReconcile_Drift(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep %t", keep), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var options []children.Option
				if keep {
					options = append(options, children.KeepDrift())
				}
				w.want("a", children.With(configMap("one", "1"), options...), rollout("three", "x"))
				n := w.writes()
				cm := w.object(sim.ConfigMaps, "one")
				cm.Object["data"] = map[string]any{"key": "drift", "other": "stays"}
				w.api.Put(sim.ConfigMaps, cm)
				d := w.object(sim.Deployments, "three")
				_ = unstructured.SetNestedField(d.Object, int64(7), "spec", "replicas")
				w.api.Put(sim.Deployments, d)
				w.idle("a")
				want, writes := "1", 1
				if keep {
					want, writes = "drift", 0
				}
				testkit.Equal(t, w.value("one"), want)
				testkit.Equal(t, w.writes(), n+writes)
				w.want("a", children.With(configMap("one", "2"), options...), rollout("three", "y"))
				testkit.Equal(t, w.value("one"), "2", "the value after a change of the desired one")
				testkit.Equal(t, w.object(sim.ConfigMaps, "one").Object["data"].(map[string]any)["other"], "stays")
				replicas, _, _ := unstructured.NestedInt64(w.object(sim.Deployments, "three").Object, "spec", "replicas")
				testkit.Equal(t, replicas, 7, "replicas, the autoscaler has set 7")
			})
		})
	}
}

// TestReconcile_ChangedPaths: the result names what differed.
func TestReconcile_ChangedPaths(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", configMap("one", "1").WithLabels(map[string]string{"app.kubernetes.io/name": "x"}))
		w.seen = nil
		w.want("a", configMap("one", "2").WithLabels(map[string]string{"app.kubernetes.io/name": "y"}))
		want := `changed ConfigMap one (.data.key, .metadata.labels["app.kubernetes.io/name"])`
		if !slices.Contains(w.seen, want) {
			t.Errorf("changes %q, want %q", w.seen, want)
		}
	})
}

// TestK2_K3_LeavesOthersObjectsAlone: an object that the owner does not control is neither
// changed nor deleted, and the other children go on. An object without the annotation is not
// pruned (K3).
func TestK2_K3_LeavesOthersObjectsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "free"}, Data: map[string]string{"key": "mine"}})
		w.want("b", configMap("theirs", "b"))
		w.want("a", configMap("free", "a"), configMap("theirs", "a"), configMap("own", "a"))
		testkit.SlicesEqual(t, []string{w.value("free"), w.value("theirs"), w.value("own")}, []string{"mine", "b", "a"})
		for _, want := range []string{
			"ConfigMap default/free: it exists and has no controlling owner, so it is left alone; delete it, or choose another name",
			"ConfigMap default/theirs: it exists and belongs to the ServiceAccount b, so it is left alone",
		} {
			testkit.ErrorContains(t, w.err("a"), want)
		}
		// K3: What Reconcile has not applied is not pruned, even if the owner controls it.
		sa := w.object(owners, "a")
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "by-hand"}}
		made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(sa, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))}
		w.api.Put(sim.ConfigMaps, made)
		w.want("a")
		testkit.NotEqual(t, w.object(sim.ConfigMaps, "by-hand"), nil)
		testkit.NotEqual(t, w.object(sim.ConfigMaps, "theirs"), nil)
		testkit.Equal(t, w.object(sim.ConfigMaps, "own"), nil)
	})
}

// TestK3_K5_AMistakeStopsNoOthers: one sentence names the child, the mistake and the remedy, and
// the others go on. Nothing of a kind is pruned if a desired child's name is unknown (K3).
func TestK3_K5_AMistakeStopsNoOthers(t *testing.T) {
	one := configMap("bad", "1")
	circle := func() []client.ApplyConfiguration {
		return []client.ApplyConfiguration{children.With(configMap("bad", "1"), children.After(configMap("bad2", ""))), children.With(configMap("bad2", "1"), children.After(configMap("bad", "")))}
	}
	for name, c := range map[string]struct {
		desired []client.ApplyConfiguration
		want    string
		keeps   bool // pruning is off
	}{
		"twice":            {[]client.ApplyConfiguration{one, configMap("bad", "2")}, "ConfigMap default/bad: it is desired twice in one call; give it once", false},
		"namespace":        {[]client.ApplyConfiguration{coreac.ConfigMap("bad", "elsewhere")}, "ConfigMap elsewhere/bad: it is in the namespace elsewhere, and an owner cannot own objects in another namespace than its own, default;", true},
		"undeclared":       {[]client.ApplyConfiguration{coreac.Secret("bad", "default")}, "Secret bad: children.New was not given its kind Secret; add children.Of with a handle for it", true},
		"version":          {[]client.ApplyConfiguration{coreac.ConfigMap("bad", "default").WithAPIVersion("v2")}, "ConfigMap bad: it is of version v2, and the handle of version v1; use the same", true},
		"no name":          {[]client.ApplyConfiguration{coreac.ConfigMap("", "default")}, "ConfigMap: it has no name", true},
		"nil":              {[]client.ApplyConfiguration{nil}, "children: the desired child is nil; leave it out", true},
		"nil in With":      {[]client.ApplyConfiguration{children.With(nil)}, "children: the desired child is nil; leave it out", true},
		"nil pointer":      {[]client.ApplyConfiguration{(*coreac.ConfigMapApplyConfiguration)(nil)}, "children: the desired child is nil; leave it out", true},
		"after unknown":    {[]client.ApplyConfiguration{children.With(one, children.After(configMap("other", "")))}, "children.After: ConfigMap default/other: it is not desired in this call; give it, too", false},
		"after nil":        {[]client.ApplyConfiguration{children.With(one, children.After(nil))}, "children.After: a child: the desired child is nil; leave it out", false},
		"circle":           {circle(), "children.After makes a circle: ConfigMap bad after ConfigMap bad2 after ConfigMap bad; leave one out", false},
		"after itself":     {[]client.ApplyConfiguration{children.With(one, children.After(one))}, "children.After makes a circle: ConfigMap bad after ConfigMap bad; leave one out", false},
		"cluster-scoped":   {[]client.ApplyConfiguration{rbacac.ClusterRole("bad")}, "ClusterRole bad: it is cluster-scoped, and a namespaced owner cannot own it; apply it with client.Handle", false},
		"refused":          {[]client.ApplyConfiguration{coreac.Service("bad", "default").WithSpec(coreac.ServiceSpec())}, "Service default/bad: ", false},
		"an object read":   {[]client.ApplyConfiguration{children.Typed(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad", UID: "u"}})}, "ConfigMap default/bad: ", false},
		"typed undeclared": {[]client.ApplyConfiguration{children.Typed(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "bad"}})}, "bad: children.New was not given its type *v1.StatefulSet; add children.Of with a handle for it", true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.want("a", configMap("old", "1"))
				w.want("a", append([]client.ApplyConfiguration{configMap("good", "1")}, c.desired...)...)
				testkit.ErrorContains(t, w.err("a"), c.want)
				testkit.Equal(t, w.value("good"), "1", "the other child is missing")
				testkit.Equal(t, w.object(sim.ConfigMaps, "old") != nil, c.keeps, "the child that is no longer desired is kept")
				n := w.writes()
				w.idle("a")
				if name != "refused" && w.writes() != n {
					t.Errorf("%d further writes", w.writes()-n)
				}
			})
		})
	}
}

// TestK4_AppliesInOrder: a child is applied once those before it are ready. The result names what
// it waits for.
func TestK4_AppliesInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		db := rollout("db", "db")
		result := w.want("a", children.With(service("web"), children.After(configMap("late", ""))), children.With(configMap("late", "1"), children.After(db)), db)
		if w.object(sim.ConfigMaps, "late") != nil || w.object(services, "web") != nil {
			t.Fatalf("applied before the Deployment is ready:\n%s", result)
		}
		if want := "Service web waits for ConfigMap late: for Deployment db: "; !strings.HasPrefix(result.Reason(), want) || result.Ready() {
			t.Errorf("reason %q, want %s...", result.Reason(), want)
		}
		w.rollOut("db")
		testkit.NotEqual(t, w.object(sim.ConfigMaps, "late"), nil, w.states("a"))
		testkit.NotEqual(t, w.object(services, "web"), nil)
		if result := w.idle("a"); !result.Ready() || result.Reason() != "" {
			t.Errorf("not ready at the end: %s", result)
		}
	})
}

// TestReconcile_Recreate: a child with a new value of an immutable field is deleted and created, or
// fails with the remedy.
func TestReconcile_Recreate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", rollout("one", "x"), rollout("two", "x"))
		before := w.object(sim.Deployments, "one").GetUID()
		w.seen = nil
		w.want("a", children.With(rollout("one", "y"), children.Recreate()), rollout("two", "y"))
		after := w.object(sim.Deployments, "one")
		if after == nil {
			t.Fatalf("%s\n%q %v", w.states("a"), w.seen, w.err("a"))
		}
		if app, _, _ := unstructured.NestedString(after.Object, "spec", "selector", "matchLabels", "app"); app != "y" || after.GetUID() == before {
			t.Errorf("the Deployment was not created again: %s", w.states("a"))
		}
		if err := w.err("a"); err == nil || !strings.Contains(err.Error(), "Deployment default/two: ") || !strings.HasSuffix(err.Error(), "keep the field, or give the child the option children.Recreate") {
			t.Errorf("error %v", err)
		}
		if w.seen[0] != "deleted Deployment one" || !slices.Contains(w.seen, "created Deployment one") {
			t.Errorf("changes %q", w.seen)
		}
	})
}

// TestK4_DeletesInReverse: children are deleted in the reverse of their order, each once those
// after it are gone. Those that are no longer desired come first.
func TestK4_DeletesInReverse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Finalizers: []string{finish}}}
		w.api.Put(owners, sa)
		db := configMap("db", "1")
		desired := []client.ApplyConfiguration{db, children.With(service("web"), children.After(db))}
		w.want("a", append(desired, configMap("old", "1"))...)
		hold := w.object(services, "web")
		hold.SetFinalizers([]string{"example.com/hold"})
		w.api.Put(services, hold)
		w.idle("a")
		w.mu.Lock()
		w.desired["a"] = desired
		w.mu.Unlock()
		w.deleteOwner("a")
		testkit.Equal(t, w.object(sim.ConfigMaps, "old"), nil, "the child that is no longer desired is left")
		if w.object(sim.ConfigMaps, "db") == nil || w.object(owners, "a") == nil || w.object(services, "web").GetDeletionTimestamp() == nil {
			t.Fatalf("not in reverse:\n%s", w.states("a"))
		}
		testkit.Contains(t, w.states("a"), "ConfigMap default/db: waiting: for the deletion of Service web", "the result")
		w.api.Remove(services, "default", "web")
		w.idle("a")
		testkit.Equal(t, w.object(sim.ConfigMaps, "db"), nil, w.states("a"))
		testkit.Equal(t, w.object(owners, "a"), nil)
	})
}

// TestK4_DeletesOthersFirst: while a child that is no longer desired is in deletion, the desired
// ones wait. The result has the reason.
func TestK4_DeletesOthersFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.doomed("a", configMap("old", "1"), configMap("one", "1"))
		w.edit(sim.ConfigMaps, "old", hold)
		w.mu.Lock()
		w.desired["a"] = []client.ApplyConfiguration{configMap("one", "1")}
		w.mu.Unlock()
		w.deleteOwner("a")
		w.touch("a") // a further Reconcile
		testkit.NotEqual(t, w.object(sim.ConfigMaps, "one"), nil, w.states("a"))
		testkit.NotEqual(t, w.object(sim.ConfigMaps, "old").GetDeletionTimestamp(), nil)
		testkit.Equal(t, w.states("a"), "ConfigMap default/one: waiting: for the deletion of others that are not desired", "the result")
		w.api.Remove(sim.ConfigMaps, "default", "old")
		w.idle("a")
		testkit.Equal(t, w.object(sim.ConfigMaps, "one"), nil, w.states("a"))
		testkit.Equal(t, w.object(owners, "a"), nil)
	})
}

// TestObject_OfAFailedApply: a child whose apply is refused is still there, as it was.
func TestObject_OfAFailedApply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a", rollout("one", "x"))
		result := w.want("a", rollout("one", "y"), configMap("two", "2"))
		d, err := children.Object[*appsv1.Deployment](t.Context(), result, "one")
		if err == nil || d == nil || d.Spec.Selector.MatchLabels["app"] != "x" {
			t.Errorf("the Deployment is %v, error %v; want it as before, and the error", d, err)
		}
		if cm, err := children.Object[*corev1.ConfigMap](t.Context(), result, "two"); err != nil || cm.Data["key"] != "2" {
			t.Errorf("the ConfigMap is %v, error %v", cm, err)
		}
		if cm, err := children.Object[*corev1.ConfigMap](t.Context(), result, "one"); err == nil || cm != nil {
			t.Errorf("a ConfigMap with the name of the Deployment: %v", cm)
		}
	})
}

// TestK3_KeepsWhatAnotherOwnerControls: an owner does not prune a child of another one that
// also has a reference to it.
func TestK3_KeepsWhatAnotherOwnerControls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a")
		w.want("b", configMap("one", "1"))
		cm := w.object(sim.ConfigMaps, "one")
		also := metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: "a", UID: w.object(owners, "a").GetUID()}
		cm.SetOwnerReferences(append(cm.GetOwnerReferences(), also))
		w.api.Put(sim.ConfigMaps, cm)
		w.idle("a") // the cache shows the reference
		w.touch("a")
		if now := w.object(sim.ConfigMaps, "one"); now == nil || now.GetUID() != cm.GetUID() {
			t.Errorf("it was deleted: %s", w.states("a"))
		}
	})
}

// TestK2_ReadsBeforeItCreates: an object of others that the cache does not show yet is not
// taken over, although it is as desired.
func TestK2_ReadsBeforeItCreates(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a")
		w.api.Lag(time.Minute)
		w.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Data: map[string]string{"key": "1"}})
		w.mu.Lock()
		w.desired["a"] = []client.ApplyConfiguration{configMap("one", "1")}
		w.mu.Unlock()
		owner, err := w.set.Reconcile(t.Context(), w.owner("a"), configMap("one", "1"))
		testkit.ErrorContains(t, err, "it exists and has no controlling owner", fmt.Sprintf("result %s, error", owner))
		testkit.Len(t, w.object(sim.ConfigMaps, "one").GetOwnerReferences(), 0, "it has the owner now")
	})
}

// TestReconcile_StartsSlowly: seven children are written in batches of 1, 2 and 4, and after a
// failure one by one.
func TestReconcile_StartsSlowly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("a")
		var all []client.ApplyConfiguration
		for i := range 7 {
			all = append(all, configMap(fmt.Sprint("child", i), "1"))
		}
		w.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch", "apply"}}, Delay: time.Second})
		took := func(owner string) time.Duration {
			began := time.Now()
			_, _ = w.set.Reconcile(t.Context(), w.owner(owner), all...)
			return time.Since(began)
		}
		testkit.Equal(t, took("a"), 3*time.Second, "seven children in three batches")
		w.want("b")
		for i := range 7 {
			all[i] = coreac.ConfigMap(fmt.Sprint("refused", i), "default").WithData(map[string]string{"no/key": ""})
		}
		testkit.Equal(t, took("b"), 7*time.Second, "seven refused children, one by one")
	})
}
