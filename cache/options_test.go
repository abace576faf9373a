// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
)

// cacheWith returns a cache with options, and a record of its hook's calls.
func cacheWith(t testing.TB, api *sim.Server, o cache.Options) (*cache.Cache, *states) {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	told := &states{}
	if o.Storage == cache.DefaultStorage {
		o.Storage = storages.Current()
	}
	o.Hook = hook.On(func(e *hook.InformerState) { told.add(*e) })
	return cache.New(c, o), told
}

// clusterScoped is a custom kind without namespaces.
var clusterScoped = sim.Resource{Group: "test.dev", Version: "v1", Kind: "Widget", Name: "widgets"}

func clusterWidget(name string) *unstructured.Unstructured {
	u := widget(name, int64(1))
	u.SetNamespace("")
	return u
}

var ofWidgets = cache.Scope{Kind: schema.GroupVersionKind{Group: "test.dev", Version: "v1", Kind: "Widget"}}

// asked returns the namespaces of the requests for a resource, sorted. "*" is all namespaces.
func asked(api *sim.Server, of sim.Resource) string {
	var all []string
	for _, r := range api.Requests() {
		if r.Resource.Resource == of.Name {
			all = append(all, r.Namespace)
			if r.Namespace == "" {
				all[len(all)-1] = "*"
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// TestS11_NothingOutsideTheNamespaces: handles keep the namespaces of the cache, which may change.
// Nothing else is requested.
func TestS11_NothingOutsideTheNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		for _, namespace := range []string{"a", "b", "c"} {
			api.Put(sim.ConfigMaps, in(namespace, "x"))
			api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}})
		}
		set := cache.NewSet("a", "b")
		c, _ := cacheWith(t, api, cache.Options{Namespaces: set})
		maps, same := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.ConfigMap](c)
		some := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"name": "x"})})
		one := cache.ForScope[*corev1.Secret](c, cache.Scope{Names: cache.NewSet(types.NamespacedName{Namespace: "b", Name: "x"})})
		testkit.NoError(t, c.Validate())
		defer testkit.Start(t, c.Run)()
		for _, got := range []string{names(t, maps), names(t, same), names(t, some)} {
			testkit.Equal(t, got, "a/x b/x")
		}
		testkit.Equal(t, names(t, one), "b/x")
		testkit.Equal(t, api.Watches(), 5)
		testkit.ErrorContains(t, testkit.Err(maps.Get(t.Context(), types.NamespacedName{Namespace: "c", Name: "x"})), "outside the scope")
		testkit.Equal(t, maps.CatchUp(t.Context()), nil)
		testkit.Equal(t, asked(api, sim.ConfigMaps)+", "+asked(api, sim.Secrets), "a b, b", "requests in")
		testkit.Equal(t, maps.String(), "ConfigMap.v1 (namespaces a b)")
		set.Replace("b", "c")
		testkit.Equal(t, names(t, maps)+", "+names(t, some), "b/x c/x, b/x c/x", "after a change")
	})
}

// TestS11_ClusterScopedKinds: built-in and custom kinds without namespaces ignore the cache's
// namespaces, in every form, whether or not the kind is served from the beginning. Readers that
// wait from before the start get all objects.
func TestS11_ClusterScopedKinds(t *testing.T) {
	for name, late := range map[string]bool{"served": false, "served later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				api := sim.NewServer(sim.Namespaces, sim.ConfigMaps)
				api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "z"}})
				serve := func() {
					api.Serve(clusterScoped)
					api.Put(clusterScoped, clusterWidget("w"))
				}
				if !late {
					serve()
				}
				c, told := cacheWith(t, api, cache.Options{Namespaces: cache.NewSet("a", "b")})
				namespaces := cache.For[*corev1.Namespace](c)
				raw := cache.ForScope[*unstructured.Unstructured](c, ofWidgets)
				meta := cache.ForScope[*metav1.PartialObjectMetadata](c, ofWidgets)
				seen, e := subscribe(t, raw)
				defer seen.Close()
				defer testkit.Start(t, c.Run)()
				if !late {
					testkit.Equal(t, testkit.Err(meta.Get(ctx, types.NamespacedName{Name: "w"})), nil)
					testkit.Len(t, testkit.Must(raw.List(ctx, cache.ListOptions{})), 1)
				} else {
					time.Sleep(10 * time.Second)
					testkit.ErrorContains(t, testkit.Err(raw.Get(ctx, types.NamespacedName{Name: "w"})), "does not serve Widget")
					serve()
				}
				testkit.NoError(t, seen.WaitForSync(ctx))
				testkit.Equal(t, e.take(), "add w", "events")
				synced(t, raw)
				synced(t, meta)
				testkit.Equal(t, names(t, namespaces)+names(t, raw), "/default /kube-node-lease /kube-public /kube-system /z/w")
				testkit.Equal(t, asked(api, sim.Namespaces)+asked(api, clusterScoped), "**", "requests in")
				synctest.Wait() // until the informers that left are released
				testkit.Len(t, c.States(), 3)
				for _, phase := range strings.Split(told.take(), ", ") {
					testkit.NotEqual(t, phase, string(hook.Failing), "an informer that was not needed failed")
				}
				testkit.Equal(t, raw.String(), "Widget.v1.test.dev (unstructured)")
				testkit.Equal(t, raw.CatchUp(ctx), nil)
			})
		})
	}
}

// TestS11_ReturnsInAnotherScope: a CRD that returns as a namespaced kind is read in the cache's
// namespaces only, and the other way round.
func TestS11_ReturnsInAnotherScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(clusterScoped)
		api.Put(clusterScoped, clusterWidget("w"))
		c, _ := cacheWith(t, api, cache.Options{Namespaces: cache.NewSet("default")})
		raw := cache.ForScope[*unstructured.Unstructured](c, ofWidgets)
		seen, e := subscribe(t, raw)
		defer seen.Close()
		defer testkit.Start(t, c.Run)()
		synced(t, raw)
		become := func(r sim.Resource, u *unstructured.Unstructured) (requests []*sim.Request) {
			api.Withdraw(sim.Resource{Group: r.Group, Version: r.Version, Kind: r.Kind, Name: r.Name})
			api.CutWatches()
			time.Sleep(time.Minute)
			before := len(api.Requests())
			api.Serve(r)
			api.Put(r, u)
			time.Sleep(time.Minute)
			synced(t, raw)
			return api.Requests()[before:]
		}
		requests := become(widgets, widget("n", int64(1)))
		testkit.Equal(t, names(t, raw), "default/n")
		for _, r := range requests {
			if r.Resource.Resource == widgets.Name && r.Namespace != "default" {
				t.Errorf("%s of all namespaces", r.Verb)
			}
		}
		if got := e.take(); got != "add w, missed w, add n" && got != "add w, add n, missed w" {
			t.Errorf("events: %s", got)
		}
		become(clusterScoped, clusterWidget("w"))
		testkit.Equal(t, names(t, raw), "/w")
		if got := e.take(); got != "missed n, add w" && got != "add w, missed n" {
			t.Errorf("events: %s", got)
		}
	})
}

// TestOptions_ScopeWins: a field that a handle's scope sets replaces the cache's default, and a
// scope can switch each default off.
func TestOptions_ScopeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		for _, name := range []string{"a", "b"} {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(name, name))
			api.Put(sim.ConfigMaps, in("other", name))
			api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"name": name}}})
		}
		mark := func(with string) *cache.Transform {
			return cache.NewTransform(with, func(m *corev1.ConfigMap) { m.Data = map[string]string{"by": with} })
		}
		c, _ := cacheWith(t, api, cache.Options{
			Namespaces: cache.NewSet("default"), Labels: labels.SelectorFromSet(labels.Set{"name": "a"}), Transform: mark("default"), Resync: time.Minute,
		})
		defer testkit.Start(t, c.Run)()
		for want, s := range map[string]cache.Scope{
			"default/a by default every 1m0s":                  {},
			"default/a default/b by default every 1m0s":        {Labels: labels.Everything()},
			"default/b by default every 1m0s":                  {Labels: labels.SelectorFromSet(labels.Set{"name": "b"})},
			"default/a other/a by default every 1m0s":          {Namespaces: cache.NewSet("")},
			"other/a by default every 1m0s":                    {Namespaces: cache.NewSet("other")},
			"default/a by scope every 1m0s":                    {Transform: mark("scope")},
			"default/a by default every 1h0m0s":                {Resync: time.Hour},
			"default/a by default every 0s":                    {Resync: cache.NoResync},
			"other/a by default every 0s":                      {Names: cache.NewSet(types.NamespacedName{Namespace: "other", Name: "a"}), Resync: cache.NoResync},
			"default/a default/b other/a other/b by all every": {Namespaces: cache.NewSet(""), Labels: labels.Everything(), Transform: mark("all")},
		} {
			h := cache.ForScope[*corev1.ConfigMap](c, s)
			list, err := h.List(t.Context(), cache.ListOptions{})
			if err != nil || len(list) == 0 {
				t.Fatalf("%s: %d objects, %v", want, len(list), err)
			}
			testkit.HasPrefix(t, names(t, h)+" by "+list[0].Data["by"]+" every "+h.Resync().String(), want)
			h.Release()
		}
		secrets := cache.For[*corev1.Secret](c) // the transform is for another type
		testkit.Equal(t, names(t, secrets), "default/a")
		testkit.Equal(t, c.Validate(), nil)
	})
}

// TestOptions_TransformOfAllTypes: a transform of cache.Object changes objects of every type and
// form.
func TestOptions_TransformOfAllTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, widgets)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Put(widgets, widget("w", int64(1)))
		c, _ := cacheWith(t, api, cache.Options{Transform: cache.NewTransform("marked", func(o cache.Object) {
			o.SetAnnotations(map[string]string{"marked": "yes"})
		})})
		maps, raw := cache.For[*corev1.ConfigMap](c), cache.ForScope[*unstructured.Unstructured](c, ofWidgets)
		defer testkit.Start(t, c.Run)()
		m, err := maps.Get(t.Context(), testkit.Key("a"))
		testkit.NoError(t, err)
		testkit.Equal(t, m.Annotations["marked"], "yes")
		u, err := raw.Get(t.Context(), testkit.Key("w"))
		testkit.NoError(t, err)
		testkit.Equal(t, u.GetAnnotations()["marked"], "yes")
	})
}

// TestOptions_Invalid: Validate and Run name each wrong field, in one line each.
func TestOptions_Invalid(t *testing.T) {
	for want, o := range map[string]cache.Options{
		`cache.Options.Namespaces is empty, so nothing would be read; add a namespace, or "" for all namespaces`:    {Namespaces: &cache.Set[string]{}},
		`cache.Options.Namespaces is empty, so nothing would be read; add a namespace, or "" for all  namespaces`:   {Namespaces: cache.ParseNamespaces(" , ")},
		`cache.Options.Namespaces has "NO NAME", which is not a namespace: a lowercase RFC 1123 label must consist`: {Namespaces: cache.NewSet("a", "NO NAME")},
		`cache.Options.Transform: the transform "t" has no function`:                                                {Transform: cache.NewTransform[*corev1.ConfigMap]("t", nil)},
		`cache.Options.QuietLimit is -1ns, it must not be negative`:                                                 {QuietLimit: -1},
		`cache.Options.Resync is -1ns, it must not be negative`:                                                     {Resync: cache.NoResync},
	} {
		c, _ := cacheWith(t, sim.NewServer(sim.ConfigMaps), o)
		maps := cache.For[*corev1.ConfigMap](c)
		want = strings.ReplaceAll(want, "  ", " ") // a key of its own
		for _, err := range []error{o.Validate(), c.Validate(), c.Run(t.Context())} {
			testkit.HasPrefix(t, fmt.Sprint(err), want)
			testkit.NotContains(t, fmt.Sprint(err), "\n")
		}
		maps.Release()
	}
	set := cache.NewSet[string]() // filled before Run
	c, _ := cacheWith(t, sim.NewServer(sim.ConfigMaps), cache.Options{Namespaces: set})
	set.Add("a")
	testkit.Start(t, c.Run)()
}

// TestParseNamespaces: a list becomes a set, and nothing but an empty list means all namespaces.
func TestParseNamespaces(t *testing.T) {
	for list, want := range map[string]string{"a": "a", "a,b": "a b", " a , b,": "a b", "a,a": "a", ",": "", " ": ""} {
		got := cache.ParseNamespaces(list).Elements()
		slices.Sort(got)
		testkit.Equal(t, strings.Join(got, " "), want, list, fmt.Sprintf("got %q", got))
	}
	testkit.Equal(t, cache.ParseNamespaces(""), nil, "an empty list limits the cache")
}

// TestInformer_OneNamespace: a handle of exactly one namespace has an informer, and one of several
// or none has not.
func TestInformer_OneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Namespaces, sim.Secrets)
		api.Put(sim.ConfigMaps, in("a", "x"))
		api.Put(sim.ConfigMaps, in("b", "x"))
		set := cache.NewSet("a")
		c, _ := cacheWith(t, api, cache.Options{Namespaces: set})
		maps := cache.For[*corev1.ConfigMap](c)
		informer, namespaces := informerOf(maps), informerOf(cache.For[*corev1.Namespace](c))
		if informer == nil || namespaces == nil {
			t.Fatal("there is no informer")
		}
		set.Add("b")
		testkit.Equal(t, informerOf(maps), nil, "the informer is one of several")
		testkit.NotEqual(t, informerOf(cache.For[*corev1.Namespace](c)), nil, "the informer is one of several")
		set.Replace()
		testkit.Equal(t, informerOf(maps), nil, "there is no namespace, but an informer")
		set.Add("b")
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synctest.Wait()
		if keys := informer.GetStore().ListKeys(); len(keys) != 1 || keys[0] != "a/x" || !namespaces.HasSynced() {
			t.Errorf("the informer has %q", keys)
		}
	})
}
