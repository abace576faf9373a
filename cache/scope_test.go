// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// in returns a ConfigMap in a namespace.
func in(namespace, name string) *corev1.ConfigMap {
	m := testkit.ConfigMap(name)
	m.Namespace = namespace
	return m
}

// names lists a handle and returns the names in one line.
func names[T cache.Object](t *testing.T, h *cache.Handle[T]) string {
	t.Helper()
	list, err := h.List(t.Context(), cache.ListOptions{})
	testkit.NoError(t, err)
	var all []string
	for _, o := range list {
		all = append(all, o.GetNamespace()+"/"+o.GetName())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestS2_ScopeNamespaces (S2): a handle keeps the namespaces of its set, which may change. For a
// subscription, objects that leave are deletes, and objects that enter are adds. Handles share the
// informers of common namespaces.
func TestS2_ScopeNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		for _, namespace := range []string{"a", "b", "c"} {
			api.Put(sim.ConfigMaps, in(namespace, "x"))
		}
		c, _ := newCache(t, api)
		set := cache.NewSet("a", "b")
		maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: set})
		other := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("b", "c")})
		seen, e := subscribe(t, maps)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synced(t, other)
		testkit.NoError(t, seen.WaitForSync(t.Context()))
		testkit.Equal(t, names(t, maps), "a/x b/x")
		testkit.Equal(t, api.Watches(), 3)
		testkit.Equal(t, e.take(), "add x, add x")
		set.Replace("b", "c")
		synctest.Wait()
		if got := e.take(); got != "missed x, add x" && got != "add x, missed x" {
			t.Errorf("got %s", got)
		}
		testkit.Equal(t, names(t, maps), "b/x c/x")
		testkit.Equal(t, api.Watches(), 2)
		if _, err := maps.Get(t.Context(), types.NamespacedName{Namespace: "a", Name: "x"}); err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "outside the scope") {
			t.Errorf("what left the scope: %v", err)
		}
		testkit.ErrorContains(t, testkit.Err(maps.List(t.Context(), cache.ListOptions{Namespace: "a"})), "outside the scope", "what left the scope")
		set.Remove("b", "c")
		synctest.Wait()
		testkit.Equal(t, names(t, maps), "")
		testkit.Equal(t, e.take(), "missed x, missed x")
		testkit.Equal(t, api.Watches(), 2)
		set.Add("a")
		synced(t, maps)
		testkit.Equal(t, testkit.Must(maps.Get(t.Context(), types.NamespacedName{Namespace: "a", Name: "x"})).Namespace, "a", "what came back")
		seen.Close()
	})
}

// TestScopeNames: a handle of single objects watches only these.
func TestScopeNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		for _, name := range []string{"a", "b", "c"} {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(name))
		}
		c, _ := newCache(t, api)
		set := cache.NewSet(testkit.Key("a"), testkit.Key("none"))
		maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Names: set})
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		testkit.Equal(t, names(t, maps), "default/a")
		for _, r := range api.Requests() {
			if r.Verb == "watch" && !strings.HasPrefix(r.Query.Get("fieldSelector"), "metadata.name=") || r.Verb != "discover" && r.Namespace != "default" {
				t.Errorf("got %s %s", r, r.Query)
			}
		}
		testkit.ErrorContains(t, testkit.Err(maps.Get(t.Context(), testkit.Key("b"))), "outside the scope")
		testkit.ErrorSatisfies(t, testkit.Err(maps.Get(t.Context(), testkit.Key("none"))), apierrors.IsNotFound)
		set.Add(testkit.Key("b"))
		synced(t, maps)
		testkit.Equal(t, names(t, maps), "default/a default/b")
	})
}

// TestScopeSelectors: an object enters and leaves a selector as an add and a delete. A NotFound
// error names the selector.
func TestScopeSelectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		m := testkit.ConfigMap("a")
		api.Put(sim.ConfigMaps, m)
		c, _ := newCache(t, api)
		maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"in": "yes"}), Fields: fields.OneTermEqualSelector("metadata.namespace", "default")})
		e := record(t, maps)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		if _, err := maps.Get(t.Context(), testkit.Key("a")); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "labels in=yes, fields metadata.namespace=default") {
			t.Errorf("got %v", err)
		}
		for _, label := range []string{"yes", "no", "yes"} {
			m.Labels["in"] = label
			api.Put(sim.ConfigMaps, m)
			synctest.Wait()
		}
		testkit.Equal(t, e.take(), "add a, delete a, add a")
		testkit.Contains(t, maps.State().String(), "(labels in=yes, fields metadata.namespace=default): synced")
	})
}

// TestForms: the typed, unstructured and metadata forms of a kind have an informer each.
func TestForms(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(a)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
				c, _ := newCache(t, api)
				scope := cache.Scope{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
				typed, raw := cache.For[*corev1.ConfigMap](c), cache.ForScope[*unstructured.Unstructured](c, scope)
				meta := cache.ForScope[*metav1.PartialObjectMetadata](c, scope)
				defer testkit.Start(t, c.Run)()
				synced(t, typed)
				synced(t, raw)
				synced(t, meta)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "2"))
				synctest.Wait()
				if m, err := typed.Get(t.Context(), testkit.Key("a")); err != nil || m.Data["data"] != "2" || m.Kind != "" {
					t.Errorf("got %v, %v", m, err)
				}
				u, err := raw.Get(t.Context(), testkit.Key("a"))
				testkit.NoError(t, err)
				if data, _, _ := unstructured.NestedString(u.Object, "data", "data"); data != "2" || u.GetKind() != "ConfigMap" || u.GetAPIVersion() != "v1" {
					t.Errorf("got %v", u)
				}
				p, err := meta.Get(t.Context(), testkit.Key("a"))
				if err != nil || p.Labels["name"] != "a" || p.Kind != "ConfigMap" || p.APIVersion != "v1" {
					t.Errorf("got %v, %v", p, err)
				}
				testkit.Equal(t, meta.State().String(), "ConfigMap.v1 (metadata): synced")
			})
		})
	}
}

// TestScopeBad: Validate, reads and the state report what is wrong with a scope, in one sentence.
func TestScopeBad(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Namespaces)
	c, _ := newCache(t, api)
	pods := cache.NewTransform("pods only", func(*corev1.Pod) {})
	for want, h := range map[string]*cache.Handle[*corev1.ConfigMap]{
		"cache.Scope has both Namespaces and Names":                 cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("a"), Names: cache.NewSet(testkit.Key("a"))}),
		"cache.Scope.Resync is -1s, it must not be negative":        cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Resync: -time.Second}),
		"cache.Scope.Kind is /v1, Kind=Pod, but the type is of /v1": cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}}),
		`the transform "pods only" is for *v1.Pod`:                  cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: pods}),
		`the transform "nothing" has no function`:                   cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: cache.NewTransform[*corev1.ConfigMap]("nothing", nil)}),
	} {
		_, read := h.Get(t.Context(), testkit.Key("a"))
		_, subscribed := h.Subscribe(nil)
		for _, err := range []error{read, subscribed, c.Validate(), h.State().Err, h.WaitForSync(t.Context()), h.Settled(t.Context()), h.Stale()} {
			testkit.ErrorContains(t, err, want)
		}
		h.Release()
		testkit.Equal(t, informerOf(h), nil)
		testkit.Equal(t, h.String(), "*v1.ConfigMap")
	}
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Namespaces)
		c, _ := newCache(t, api)
		namespaces := cache.ForScope[*corev1.Namespace](c, cache.Scope{Namespaces: cache.NewSet("a")})
		defer testkit.Start(t, c.Run)()
		testkit.NoError(t, namespaces.Settled(t.Context()))
		testkit.Equal(t, namespaces.State().Phase, hook.Failing)
		testkit.Contains(t, namespaces.State().String(), "Namespace is a cluster-scoped kind: its cache.Scope must not have a namespace")
	})
}

// TestS6_Release: the last release stops an informer, its watch and its goroutines. Handles and
// subscriptions keep it alive.
func TestS6_Release(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Deployments)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		first, second := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.ConfigMap](c)
		seen, e := subscribe(t, second)
		synced(t, first)
		for _, release := range []func(){first.Release, first.Release, second.Release, second.Release} {
			if api.Watches() != 1 {
				t.Fatalf("%d watches", api.Watches())
			}
			release()
			synctest.Wait()
		}
		testkit.ErrorContains(t, testkit.Err(second.Get(t.Context(), testkit.Key("a"))), "the handle for ConfigMap.v1 was released; declare another with cache.For", "a read after Release")
		testkit.Equal(t, second.State().Phase, hook.Stopped, second.State())
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
		synctest.Wait()
		testkit.Equal(t, e.take(), "add a, add b", "the subscription after Release")
		seen.Close()
		seen.Close()
		synctest.Wait()
		testkit.Equal(t, api.Watches(), 0)
		testkit.Len(t, c.States(), 0)
		third := cache.For[*corev1.ConfigMap](c)
		synced(t, third)
		testkit.Equal(t, names(t, third), "default/a default/b", "a new informer has")
	})
}

// TestS6_NeverStarted: a handle that is released before the cache runs causes no request.
func TestS6_NeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		seen, _ := subscribe(t, maps)
		maps.Release()
		seen.Close()
		stop := testkit.Start(t, c.Run)
		time.Sleep(time.Minute)
		stop()
		testkit.Equal(t, len(api.Requests()), 0)
	})
}

// TestS6_AfterTheEnd: release, close and scope changes after Run do nothing and do not hang.
func TestS6_AfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		set := cache.NewSet("a")
		maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: set})
		seen, _ := subscribe(t, maps)
		testkit.Start(t, c.Run)()
		set.Replace("b")
		testkit.ErrorContains(t, seen.WaitForSync(t.Context()), "never will be")
		testkit.NotEqual(t, testkit.Err(cache.For[*corev1.ConfigMap](c).Get(t.Context(), testkit.Key("a"))), nil, "a handle that was made too late answers")
		seen.Close()
		maps.Release()
		testkit.ErrorContains(t, testkit.Err(maps.Subscribe(nil)), "released")
	})
}

// TestS7_Many: 50 handles with a subscription each cause one list and one watch. 1,000 scopes come
// and go without a trace.
func TestS7_Many(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Deployments)
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		for range 50 {
			h := cache.For[*appsv1.Deployment](c)
			seen, _ := subscribe(t, h)
			defer seen.Close()
			synced(t, h)
		}
		testkit.Equal(t, api.Count("list", sim.Deployments), 0)
		testkit.Equal(t, api.Count("watch", sim.Deployments), 1)
		for range 1000 {
			h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("a", "b")})
			seen, _ := subscribe(t, h)
			h.Release()
			seen.Close()
		}
		synctest.Wait()
		testkit.Equal(t, api.Watches(), 1)
		testkit.Len(t, c.States(), 1)
	})
}

// TestS5_OneQuestion: a group-version is asked for every 4 seconds, for any number of waiting
// informers.
func TestS5_OneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		var handles []*cache.Handle[*appsv1.Deployment]
		for _, namespace := range strings.Fields("a b c d e f g h i j") {
			handles = append(handles, cache.ForScope[*appsv1.Deployment](c, cache.Scope{Namespaces: cache.NewSet(namespace)}))
			cache.ForScope[*appsv1.StatefulSet](c, cache.Scope{Namespaces: cache.NewSet(namespace)})
		}
		defer testkit.Start(t, c.Run)()
		questions := func() (n int) {
			for _, r := range api.Requests() {
				if r.Verb == "discover" && r.Resource.Group == "apps" {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute)
		testkit.Between(t, questions(), 15, 16, "in a minute")
		before := questions()
		api.Serve(sim.Deployments)
		for _, h := range handles {
			synced(t, h)
		}
		testkit.Equal(t, questions()-before, 1, "asked when it had come")
		api.Withdraw(sim.Deployments)
		before = questions()
		time.Sleep(time.Minute)
		testkit.AtMost(t, questions()-before, 16, "in the minute after it had gone")
	})
}

// TestS4_Settled (S4): a handle is settled when it is synced or has a reason why not.
func TestS4_Settled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Deployments)
		api.Intercept(only(sim.ConfigMaps, hang))
		c, _ := newCache(t, api)
		maps, deployments, missing := cache.For[*corev1.ConfigMap](c), cache.For[*appsv1.Deployment](c), cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: schema.GroupVersionKind{Group: "x", Version: "v1", Kind: "X"}})
		defer testkit.Start(t, c.Run)()
		for name, settled := range map[string]func(context.Context) error{"synced": deployments.Settled, "waiting": missing.Settled} {
			testkit.Equal(t, settled(t.Context()), nil, name)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		testkit.NoError(t, maps.Settled(ctx), "an API server that does not answer")
		testkit.Equal(t, time.Since(begin), 30*time.Second, "an API server that does not answer")
		maps.Release()
	})
}

// TestScopeNothing: an empty selection, or an invalid namespace or name, must not select
// everything. State and Stale report a mistake; reads do not.
func TestScopeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Put(sim.ConfigMaps, in("other", "a"))
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		var none cache.Set[string]
		for want, s := range map[string]cache.Scope{
			"ConfigMap.v1 (nothing): synced":                                               {Labels: labels.Nothing()},
			"ConfigMap.v1 (fields metadata.name=a, nothing): synced":                       {Labels: labels.Nothing(), Fields: fields.OneTermEqualSelector("metadata.name", "a")},
			"ConfigMap.v1 (nothing): synced.":                                              {Fields: fields.Nothing()},
			"ConfigMap.v1 (0 namespaces): synced":                                          {Namespaces: &none},
			`cache.Scope.Namespaces has "NO NAME", which is not a namespace: `:             {Namespaces: cache.NewSet("NO NAME")},
			`cache.Scope.Names has "default/", which has no name`:                          {Names: cache.NewSet(testkit.Key(""))},
			`cache.Scope.Names has "", which has no name`:                                  {Names: cache.NewSet(types.NamespacedName{})},
			`cache.Scope.Names has "../a", whose namespace is invalid: `:                   {Names: cache.NewSet(types.NamespacedName{Namespace: "..", Name: "a"})},
			`cache.Scope.Names has "default/a/b", which is not a name: it may not contain`: {Names: cache.NewSet(testkit.Key("a/b"))},
			`the name "a" in its cache.Scope needs a namespace`:                            {Names: cache.NewSet(types.NamespacedName{Name: "a"})},
		} {
			h := cache.ForScope[*corev1.ConfigMap](c, s)
			testkit.NoError(t, h.Settled(t.Context()))
			mistake := !strings.HasPrefix(want, "ConfigMap")
			list, err := h.List(t.Context(), cache.ListOptions{})
			if s := h.State(); len(list) != 0 || !strings.Contains(s.String()+".", want) || (h.Stale() != nil) != mistake || (s.Phase == hook.Failing) != mistake {
				t.Errorf("%s: %d objects, %v; %s, stale: %v", want, len(list), err, s, h.Stale())
			}
			h.Release()
		}
		none.Add("default")
		some := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("default", "other", "NO NAME")})
		testkit.Equal(t, names(t, some), "default/a other/a")
		testkit.NotEqual(t, some.Stale(), nil)
		for want, h := range map[string]*cache.Handle[*corev1.ConfigMap]{
			"ConfigMap.v1 (namespace default)":         cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: &none}),
			"ConfigMap.v1 (4 namespaces)":              cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("a", "b", "c", "d")}),
			"ConfigMap.v1 (names default/a default/b)": cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Names: cache.NewSet(testkit.Key("b"), testkit.Key("a"))}),
		} {
			testkit.Equal(t, h.String(), want)
		}
	})
}

// TestNil: nil arguments are errors, not panics.
func TestNil(t *testing.T) {
	c, _ := newCache(t, sim.NewServer(sim.ConfigMaps))
	maps := cache.For[*corev1.ConfigMap](c)
	testkit.ErrorContains(t, testkit.Err(maps.Subscribe(nil)), "subscribe to ConfigMap.v1: the handler is nil")
	all := func(*corev1.ConfigMap) []string { return nil }
	for want, x := range map[string]*cache.Index[*corev1.ConfigMap]{
		`cache.NewIndex("x") was given no handle`:                 cache.NewIndex(nil, "x", all),
		`cache.NewIndex(ConfigMap.v1) was given no name`:          cache.NewIndex(cache.For[*corev1.ConfigMap](c), "", all),
		`cache.NewIndex(ConfigMap.v1, "x") was given no function`: cache.NewIndex[*corev1.ConfigMap](cache.For[*corev1.ConfigMap](c), "x", nil),
	} {
		testkit.ErrorContains(t, testkit.Err(x.List(t.Context(), "", cache.ListOptions{})), want)
	}
}
