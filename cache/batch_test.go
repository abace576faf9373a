// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// batch is all that a leader has written of a resource.
func batch(r sim.Resource, version string, deleted map[types.UID]bool) consistency.Write {
	return consistency.Write{
		Host: sim.Host, Resource: schema.GroupResource{Group: r.Group, Resource: r.Name}, ResourceVersion: version,
		Answered: time.Now(), Batch: &consistency.Batch{Deleted: deleted},
	}
}

// resolved returns the verdict about what Resolve has found.
func resolved(t *testing.T, d consistency.Declarations, w consistency.Write) string {
	t.Helper()
	found, fate, err := d.Resolve(t.Context(), w)
	if err != nil || fate != consistency.Decided {
		t.Fatalf("the fate is %d: %v", fate, err)
	}
	for _, f := range found {
		if v := verdict(d, f); v != "shown" {
			return v + " " + f.String()
		}
	}
	return "shown"
}

// TestL9_BatchesAndScopes: an informer of all objects waits for the version. One that selects some
// objects is compared with the API server, once it has synced.
func TestL9_BatchesAndScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Pods)
		dropBookmarks(api)
		api.Put(sim.Pods, &corev1.Pod{ObjectMeta: named("there")})
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		web := labels.SelectorFromSet(labels.Set{"app": "web"})
		for name, check := range map[string]struct {
			scope cache.Scope
			want  string
		}{
			"all":        {cache.Scope{}, "behind"},
			"namespaces": {cache.Scope{Namespaces: cache.NewSet("x", "default")}, "unclear"},
			"a name":     {cache.Scope{Names: cache.NewSet(testkit.Key("other"))}, "unclear"},
			"labels":     {cache.Scope{Labels: web}, "unclear"},
			"fields":     {cache.Scope{Fields: fields.OneTermEqualSelector("spec.nodeName", "one")}, "unclear"},
		} {
			h := cache.ForScope[*corev1.Pod](c, check.scope)
			d := declared(h)
			w := batch(sim.Pods, "1000", nil)
			synced(t, h)
			expect(t, d, w, check.want, name)
			if check.want == "unclear" {
				testkit.Equal(t, resolved(t, d, w), "shown", name, "nothing has changed, and it")
			}
			expect(t, d, batch(sim.Pods, api.Version(), nil), "shown", name+" at the version of the list")
			expect(t, d, batch(sim.Pods, "", map[types.UID]bool{"never": false}), "shown", name+" without the object")
			lost := batch(sim.Pods, api.Version(), nil)
			lost.Batch.Lost = true
			expect(t, d, lost, "unclear", name+" with a lost answer")
			lost.Resource = schema.GroupResource{}
			expect(t, d, lost, "unclear", name+" with a lost answer about any resource")
			elsewhere := batch(sim.Pods, "1000", nil)
			elsewhere.Host = "https://other.test"
			expect(t, d, elsewhere, "shown", name+" in another cluster")
			expect(t, d, batch(sim.Secrets, "1000", nil), "shown", name+" of another kind")
			h.Release()
		}
	})
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// TestL9_AComparisonFindsWhatIsNotShown: creations, changes and deletions within the selection.
func TestL9_AComparisonFindsWhatIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		put := func(name, value string, in bool) {
			m := &corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"k": value}}
			m.Labels = map[string]string{"in": map[bool]string{true: "yes", false: "no"}[in]}
			api.Put(sim.ConfigMaps, m)
		}
		for _, name := range []string{"same", "changed", "gone", "left"} {
			put(name, "", true)
		}
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"in": "yes"})})
		synced(t, h)
		d := declared(h)
		api.Lag(lag)
		put("changed", "x", true)
		put("new", "x", true)
		put("left", "x", false)
		put("out", "x", false)
		api.Remove(sim.ConfigMaps, "default", "gone")
		w := batch(sim.ConfigMaps, api.Version(), nil)
		found, _, err := d.Resolve(t.Context(), w)
		testkit.NoError(t, err)
		names := map[string]bool{}
		var woken atomic.Int32
		for _, f := range found {
			names[f.String()] = true
			expect(t, d, f, "behind", f.String())
			if missing, _ := d.Behind(f); missing != nil {
				missing.Notify(wake(func() { woken.Add(1) }))
			}
		}
		for _, name := range []string{"changed", "new", "left", "gone"} {
			testkit.Equal(t, names["default/"+name], true)
			testkit.Len(t, names, 4)
		}
		time.Sleep(lag)
		synctest.Wait()
		testkit.Equal(t, woken.Load(), 4, "waiters were woken")
		testkit.Equal(t, resolved(t, d, w), "shown", "at the end it")
		api.Add(fault.Rule{Match: fault.Match{Resources: []string{"configmaps"}, Verbs: []string{"list"}}, Refuse: apierrors.NewInternalError(errors.New("no"))})
		put("out", "y", false)
		time.Sleep(lag)
		if _, _, err := d.Resolve(t.Context(), batch(sim.ConfigMaps, api.Version(), nil)); err == nil || !strings.Contains(err.Error(), "cannot compare") {
			t.Errorf("without an answer: %v", err)
		}
	})
}

// TestL9_DeletedObjects: an informer that has passed the version waits until it lacks the deleted
// objects. One that selects some objects waits a second more, until it is compared.
func TestL9_DeletedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		gone := api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("gone")}).GetUID()
		marked := api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "marked", Finalizers: []string{"setpoint.dev/test"}}}).GetUID()
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		h, some := cache.For[*corev1.ConfigMap](c), cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"in": "yes"})})
		synced(t, h)
		synced(t, some)
		d, selected := declared(h), declared(some)
		api.Lag(lag)
		api.Remove(sim.ConfigMaps, "default", "gone")
		for what, w := range map[string]consistency.Write{
			"gone":    batch(sim.ConfigMaps, "", map[types.UID]bool{"never": false, gone: false}),
			"marked":  batch(sim.ConfigMaps, "", map[types.UID]bool{marked: true}),
			"version": batch(sim.ConfigMaps, "1000", map[types.UID]bool{"never": false}),
		} {
			expect(t, d, w, "behind", what)
			if missing, _ := d.Behind(w); missing != nil && what != "version" && !strings.Contains(missing.String(), "the deletion of default/"+what) {
				t.Errorf("%s: %s", what, missing)
			}
		}
		coming := batch(sim.ConfigMaps, "1000", map[types.UID]bool{"never": false})
		expect(t, selected, coming, "behind", "within a second")
		time.Sleep(time.Second)
		expect(t, selected, coming, "unclear", "after a second")
		time.Sleep(lag)
		synctest.Wait()
		expect(t, d, batch(sim.ConfigMaps, "", map[types.UID]bool{gone: false}), "shown", "gone")
	})
}

// TestL9_ADeletedObjectComesMeanwhile: an informer reaches the version with an object that was
// deleted after it. What waits is woken at once, and then waits for the deletion.
func TestL9_ADeletedObjectComesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		h := cache.For[*corev1.ConfigMap](c)
		synced(t, h)
		d := declared(h)
		api.Lag(lag)
		m := api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("new")})
		w := batch(sim.ConfigMaps, m.GetResourceVersion(), map[types.UID]bool{m.GetUID(): false})
		for _, want := range []string{"the write", "the deletion of default/new"} {
			missing, err := d.Behind(w)
			if err != nil || missing == nil || !strings.Contains(missing.String(), want) {
				t.Fatalf("%v, %v, want a lag with %q", missing, err, want)
			}
			woken := make(consistency.Signal, 1)
			defer missing.Notify(woken)()
			time.Sleep(lag)
			synctest.Wait()
			if len(woken) == 0 {
				t.Fatalf("after %s, the wait for %q goes on", lag, missing)
			}
			api.Remove(sim.ConfigMaps, "default", "new")
		}
		expect(t, d, w, "shown", "after the deletion")
	})
}
