// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func ofKind[T runtime.Object](obj T, kind string) T {
	obj.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return obj
}

// listed returns the names of a list's items, with their kinds.
func listed(t *testing.T, list runtime.Object) string {
	t.Helper()
	var all []string
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		o := obj.(cache.Object)
		all = append(all, obj.GetObjectKind().GroupVersionKind().Kind+" "+o.GetNamespace()+"/"+o.GetName())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestGeneric_Forms: Get and List of the cache read every form of a declared kind, as copies with
// their kind. They wait for the initial list.
func TestGeneric_Forms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		api.Put(sim.ConfigMaps, in("other", "b"))
		c, _ := newCache(t, api)
		scope := cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
		maps := cache.For[*corev1.ConfigMap](c)
		cache.ForScope[*unstructured.Unstructured](c, scope)
		cache.ForScope[*metav1.PartialObjectMetadata](c, scope)
		defer testkit.Start(t, c.Run)()
		for _, into := range []cache.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before", Labels: map[string]string{"before": "yes"}}},
			ofKind(&unstructured.Unstructured{}, "ConfigMap"), ofKind(&metav1.PartialObjectMetadata{}, "ConfigMap"),
		} {
			for range 2 { // the second finds no change of the first
				testkit.NoError(t, c.Get(t.Context(), testkit.Key("a"), into))
				if kind := into.GetObjectKind().GroupVersionKind(); into.GetName() != "a" || len(into.GetLabels()) != 1 || into.GetUID() == "" || kind != scope.Kind {
					t.Errorf("got %v of %s", into, kind)
				}
				into.SetLabels(map[string]string{"x": "y", "z": ""})
				into.SetName("changed")
			}
			testkit.ErrorSatisfies(t, c.Get(t.Context(), testkit.Key("b"), into), apierrors.IsNotFound)
			testkit.Equal(t, into.GetName(), "changed")
		}
		for _, list := range []runtime.Object{
			&corev1.ConfigMapList{Items: []corev1.ConfigMap{{}}},
			ofKind(&unstructured.UnstructuredList{}, "ConfigMapList"), ofKind(&metav1.PartialObjectMetadataList{}, "ConfigMapList"),
		} {
			for want, o := range map[string]cache.ListOptions{
				"ConfigMap default/a, ConfigMap other/b": {},
				"ConfigMap other/b":                      {Namespace: "other"},
				"ConfigMap default/a":                    {Labels: labels.SelectorFromSet(labels.Set{"name": "a"})},
				"":                                       {Namespace: "none"},
			} {
				testkit.NoError(t, c.List(t.Context(), list, o))
				testkit.Equal(t, listed(t, list), want, list)
			}
		}
		if m, err := maps.Get(t.Context(), testkit.Key("a")); err != nil || m.Kind != "" || m.Labels["name"] != "a" {
			t.Errorf("the stored object has changed: %v, %v", m, err)
		}
		testkit.Equal(t, api.Watches(), 3)
	})
}

// TestGeneric_SeveralHandles: the handle that covers what is read answers, the widest first. If
// that leaves several whose contents may differ, it is an error.
func TestGeneric_SeveralHandles(t *testing.T) {
	a := cache.Scope{Namespaces: cache.NewSet("a")}
	ab := cache.Scope{Namespaces: cache.NewSet("a", "b")}
	name := cache.Scope{Names: cache.NewSet(types.NamespacedName{Namespace: "c", Name: "x"})}
	app := cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"name": "x"})}
	other := cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"name": "y"})}
	small := cache.Scope{Transform: cache.NewTransform("small", func(*corev1.ConfigMap) {})}
	for want, scopes := range map[string][]cache.Scope{
		"a: found; c: found; all: 3":                     {{}, a, name, app},
		"a: found; c: outside; all: 1":                   {a},
		"a: found; c: outside; all: 2":                   {ab},
		"a: found; c: found; all: 1":                     {a, name},
		"a: found; c: outside; all: several":             {a, ab},
		"a: outside; c: found; all: 1":                   {name},
		"a: found; c: found; all: 3 ":                    {app},
		"a: several; c: several; all: several":           {app, other},
		"a: several; c: several; all: several ":          {{}, small},
		"a: found; c: found; all: 3  ":                   {{}, {}},
		"a: found; c: outside; all: 1 ":                  {a, a},
		"a: has no handle; c: has no handle; all: has n": {},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.ConfigMaps)
			for _, namespace := range []string{"a", "b", "c"} {
				api.Put(sim.ConfigMaps, in(namespace, "x"))
			}
			c, _ := newCache(t, api)
			for _, s := range scopes {
				cache.ForScope[*corev1.ConfigMap](c, s)
			}
			cache.For[*corev1.ConfigMap](c).Release() // does not count
			defer testkit.Start(t, c.Run)()
			short := func(err error, found string) string {
				for _, words := range []string{"outside", "several", "has no handle; add one before the cache runs, with cache.For[*v1.ConfigMap](c)"} {
					if err != nil && strings.Contains(err.Error(), words) {
						return words[:min(len(words), 13)]
					}
				}
				testkit.Equal(t, err, nil)
				return found
			}
			get := func(namespace string) string {
				return short(c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "x"}, &corev1.ConfigMap{}), "found")
			}
			list := &corev1.ConfigMapList{}
			err := c.List(t.Context(), list, cache.ListOptions{})
			got := "a: " + get("a") + "; c: " + get("c") + "; all: " + short(err, string(rune('0'+len(list.Items))))
			testkit.HasPrefix(t, got, strings.TrimSpace(want))
		})
	}
}

// TestGeneric_DeclaredOnly: in a Reconcile, only the handles that its controller declares are read.
func TestGeneric_DeclaredOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		small := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: cache.NewTransform("small", func(m *corev1.ConfigMap) { m.Labels = nil })})
		cache.For[*corev1.Secret](c)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synced(t, small)
		d := cache.NewDeclarations()
		d.Declare("the controller \"x\"", small)
		ctx := d.Context(t.Context())
		m := &corev1.ConfigMap{}
		if err := c.Get(ctx, testkit.Key("a"), m); err != nil || m.Labels != nil {
			t.Errorf("got %v, %v", m, err)
		}
		testkit.Equal(t, c.List(ctx, &corev1.ConfigMapList{}, cache.ListOptions{}), nil)
		want := `the controller "x" does not declare Secret.v1; pass the handle to its Reads`
		for _, err := range []error{c.Get(ctx, testkit.Key("a"), &corev1.Secret{}), c.List(ctx, &corev1.SecretList{}, cache.ListOptions{})} {
			testkit.ErrorContains(t, err, want)
		}
	})
}

// TestGeneric_BadInput: each wrong argument is one clear error.
func TestGeneric_BadInput(t *testing.T) {
	c, _ := newCache(t, sim.NewServer(sim.ConfigMaps))
	cache.For[*corev1.ConfigMap](c)
	var none *corev1.ConfigMap
	get := func(into cache.Object) error { return c.Get(t.Context(), testkit.Key("a"), into) }
	list := func(into runtime.Object) error { return c.List(t.Context(), into, cache.ListOptions{}) }
	for want, err := range map[string]error{
		"get <nil> default/a: the object is nil; pass a pointer, such as &corev1.Pod{}":                                  get(nil),
		"get *v1.ConfigMap default/a: the object is nil; pass a pointer":                                                 get(none),
		"get *unstructured.Unstructured default/a: it has no kind; set its apiVersion and kind":                          get(&unstructured.Unstructured{}),
		"has no handle in the unstructured form; add one before the cache runs, with cache.ForScope[*unstructured.Unstr": get(ofKind(&unstructured.Unstructured{}, "ConfigMap")),
		"get *cache_test.Widget default/a: the scheme does not know the type; add its package with AddToScheme":          get(&Widget{}),
		"list <nil>: it is not a list":                                                       list(nil),
		"list *v1.ConfigMap: it is not a list; pass a pointer":                               list(&corev1.ConfigMap{}),
		"list *unstructured.UnstructuredList: its kind is ConfigMap; set it":                 list(ofKind(&unstructured.UnstructuredList{}, "ConfigMap")),
		"Secret has no handle; add one before the cache runs, with cache.For[*v1.Secret](c)": list(&corev1.SecretList{}),
		"in the metadata form; add one before the cache runs, with cache.ForScope[*v1.Parti": list(ofKind(&metav1.PartialObjectMetadataList{}, "ConfigMapList")),
	} {
		testkit.ErrorContains(t, err, want)
		testkit.NotContains(t, fmt.Sprint(err), "\n")
	}
}

// TestGeneric_Adopted: informers of the host program can be read, too, also without a Backend.
func TestGeneric_Adopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(api.Config()), 0)
		c := cache.New(nil, cache.Options{})
		informer := factory.Core().V1().ConfigMaps().Informer()
		cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		defer testkit.Start(t, c.Run)()
		defer runs(informer)()
		m := &corev1.ConfigMap{}
		testkit.Equal(t, c.Get(t.Context(), testkit.Key("a"), m), nil)
		testkit.Equal(t, m.Name, "a")
	})
}
