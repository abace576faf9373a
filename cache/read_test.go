// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS7_OneListOneWatch: a kind is listed and watched once, for any number of handles, made at any
// time.
func TestS7_OneListOneWatch(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
				api.Intercept(a)
				c, _ := newCache(t, api)
				var handles []*cache.Handle[*corev1.ConfigMap]
				for range 5 {
					handles = append(handles, cache.For[*corev1.ConfigMap](c))
				}
				defer testkit.Start(t, c.Run)()
				synctest.Wait()
				for range 5 {
					handles = append(handles, cache.For[*corev1.ConfigMap](c))
				}
				for _, h := range handles {
					synced(t, h)
					testkit.Equal(t, informerOf(h), informerOf(handles[0]), "a handle has an informer of its own")
				}
				time.Sleep(time.Minute)
				lists, watches := api.Count("list", sim.ConfigMaps), api.Count("watch", sim.ConfigMaps)
				// Two watches: one was refused.
				if name == "streaming" && (lists != 0 || watches != 1) || name == "listing" && (lists != 1 || watches != 2) {
					t.Errorf("%d lists and %d watches", lists, watches)
				}
				testkit.Equal(t, api.Watches(), 1)
				testkit.Equal(t, api.Count("", sim.Secrets), 0, "requests for a kind that nobody declared")
				testkit.Equal(t, len(c.States()), 1)
			})
		})
	}
}

// TestS9_ReadWaits: a read waits for the initial list. If its context ends before, the error has
// the informer's state.
func TestS9_ReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Intercept(hang)
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		late := errors.New("too late")
		read := func(want string) {
			t.Helper()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, late)
			defer cancel()
			_, got := maps.Get(ctx, testkit.Key("a"))
			_, listed := maps.List(ctx, cache.ListOptions{})
			for _, err := range []error{got, listed} {
				if !errors.Is(err, late) || !strings.Contains(err.Error(), "ConfigMap") || !strings.Contains(err.Error(), "not synced") || !strings.Contains(err.Error(), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
		}
		read("not started")
		stop := testkit.Start(t, c.Run)
		read("syncing")
		api.Intercept(forbid)
		api.CutWatches()
		stop()
		_, err := maps.Get(context.Background(), testkit.Key("a"))
		testkit.ErrorContains(t, err, "never will be", "after the cache's end")
		testkit.ErrorContains(t, err, "stopped", "after the cache's end")
	})
}

// TestS9_ReadSaysWhy: if the list fails, a read returns the reason at once; WaitForSync waits.
func TestS9_ReadSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Intercept(forbid)
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		testkit.NoError(t, maps.Settled(t.Context()))
		if m, err := maps.Get(t.Context(), testkit.Key("a")); err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "failing") {
			t.Errorf("answered %v, %v from an unsynced store", m, err)
		}
		waited := make(chan error, 1)
		go func() { waited <- maps.WaitForSync(context.Background()) }()
		time.Sleep(time.Hour)
		select {
		case err := <-waited:
			t.Errorf("did not wait: %v", err)
		default:
		}
		api.Intercept(nil)
		testkit.Equal(t, <-waited, nil)
		testkit.Equal(t, testkit.Must(maps.Get(t.Context(), testkit.Key("a"))).Name, "a")
		testkit.Equal(t, maps.Stale(), nil)
	})
}

// TestS9_LastKnownState: when the API server is gone, and after the cache has stopped, reads return
// the last known state, and Stale reports that.
func TestS9_LastKnownState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		stop := testkit.Start(t, c.Run)
		synced(t, maps)
		api.Intercept(refuse)
		api.CutWatches()
		time.Sleep(time.Minute)
		for _, want := range []string{"failing", "stopped"} {
			testkit.ErrorContains(t, maps.Stale(), want)
			testkit.Equal(t, testkit.Must(maps.Get(t.Context(), testkit.Key("a"))).Name, "a", "the last known state")
			stop()
		}
	})
}

func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Namespaces)
		for _, name := range []string{"a", "b"} {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(name, name))
		}
		elsewhere := testkit.ConfigMap("a")
		elsewhere.Namespace = "other"
		api.Put(sim.ConfigMaps, elsewhere)
		api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		c, _ := newCache(t, api)
		ctx, maps, namespaces := t.Context(), cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Namespace](c)
		defer testkit.Start(t, c.Run)()

		m, err := maps.Get(ctx, testkit.Key("a"))
		if err != nil || m.Data["data"] != "a" {
			t.Fatalf("got %v, %v", m, err)
		}
		m.Data["data"] = "changed"
		m.Labels["name"] = "changed"
		list := func(o cache.ListOptions) string {
			t.Helper()
			objects, err := maps.List(ctx, o)
			testkit.Equal(t, err, nil)
			var names []string
			for _, o := range objects {
				names = append(names, o.Namespace+"/"+o.Name+"="+o.Labels["name"])
				o.Labels["name"] = "changed"
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		// Twice: changes of the objects of the first round must not reach the store.
		for range 2 {
			testkit.Equal(t, list(cache.ListOptions{}), "default/a=a default/b=b other/a=a", "all")
		}
		testkit.Equal(t, list(cache.ListOptions{Namespace: "default"}), "default/a=a default/b=b", "one namespace")
		testkit.Equal(t, list(cache.ListOptions{Namespace: "default", Labels: labels.SelectorFromSet(labels.Set{"name": "b"})}), "default/b=b", "selected")
		if m, err := maps.Get(ctx, testkit.Key("a")); err != nil || m.Data["data"] != "a" || m.Labels["name"] != "a" {
			t.Errorf("a copy reached the store: %v, %v", m, err)
		}
		testkit.Equal(t, testkit.Must(namespaces.Get(ctx, types.NamespacedName{Name: "default"})).Name, "default")
		for what, err := range map[string]error{
			`configmaps "none" not found`:                                                            second(maps.Get(ctx, testkit.Key("none"))),
			"get ConfigMap a: ConfigMap is a namespaced kind: name the namespace":                    second(maps.Get(ctx, types.NamespacedName{Name: "a"})),
			`get Namespace default/a: Namespace is a cluster-scoped kind: leave the namespace empty`: second(namespaces.Get(ctx, testkit.Key("a"))),
			`list Namespace: Namespace is a cluster-scoped kind: leave the namespace empty, not "x"`: second(namespaces.List(ctx, cache.ListOptions{Namespace: "x"})),
		} {
			testkit.ErrorContains(t, err, what)
			testkit.Equal(t, apierrors.IsNotFound(err), strings.HasSuffix(what, "not found"), what)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestHandle(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Namespaces)
	c, _ := newCache(t, api)
	maps := cache.For[*corev1.ConfigMap](c)
	testkit.Equal(t, maps.String(), "ConfigMap.v1")
	testkit.Equal(t, maps.GroupVersionKind().Kind, "ConfigMap")
	if _, err := maps.Namespaced(); !errors.Is(err, cache.ErrNotSynced) || !strings.Contains(err.Error(), "not known yet") {
		t.Errorf("before anybody asked: %v", err)
	}
	namespaces := cache.For[*corev1.Namespace](c)
	defer testkit.Start(t, c.Run)()
	synced(t, maps)
	synced(t, namespaces)
	testkit.Equal(t, testkit.Must(maps.Namespaced()), true, "config maps are namespaced")
	testkit.Equal(t, testkit.Must(namespaces.Namespaced()), false, "namespaces are namespaced")
	m := testkit.ConfigMap("a")
	m.UID = "uid"
	r := maps.OwnerRef(m)
	if *r.APIVersion != "v1" || *r.Kind != "ConfigMap" || *r.Name != "a" || *r.UID != "uid" || !*r.Controller || !*r.BlockOwnerDeletion {
		t.Errorf("got %+v", r)
	}
}

// TestValidate: Validate names all types that cannot be cached. Every use of such a handle returns
// the same error.
func TestValidate(t *testing.T) {
	noLists := runtime.NewScheme()
	noLists.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{})
	api := sim.NewServer()
	b, err := client.New(api.Config(), client.Options{Scheme: noLists})
	testkit.NoError(t, err)
	c := cache.New(b, cache.Options{})
	testkit.Equal(t, c.Validate(), nil)
	noList, unknown, notAPointer := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Secret](c), cache.For[cache.Object](c)
	wants := []string{
		"cache.For[*v1.ConfigMap]: the scheme knows the type but not ConfigMapList",
		"cache.For[*v1.Secret]: the scheme does not know the type",
		"cache.For[object.Object]: T must be a pointer",
		"cache.For[*unstructured.Unstructured]: the type has no kind",
	}
	cache.For[*unstructured.Unstructured](c)
	err = c.Validate()
	for _, want := range wants {
		testkit.ErrorContains(t, err, want)
	}
	ctx := t.Context()
	for i, errs := range [][]error{
		{noList.WaitForSync(ctx), second(noList.Get(ctx, testkit.Key("a"))), second(noList.List(ctx, cache.ListOptions{})), second(noList.Namespaced()), noList.State().Err},
		{unknown.WaitForSync(ctx), second(unknown.Get(ctx, testkit.Key("a"))), second(unknown.List(ctx, cache.ListOptions{})), second(unknown.Namespaced()), unknown.State().Err},
		{notAPointer.WaitForSync(ctx), second(notAPointer.Get(ctx, testkit.Key("a"))), second(notAPointer.List(ctx, cache.ListOptions{})), second(notAPointer.Namespaced()), notAPointer.State().Err},
	} {
		for _, err := range errs {
			testkit.ErrorContains(t, err, wants[i])
		}
	}
	testkit.Equal(t, len(api.Requests()), 0)
}

func TestRunTwice(t *testing.T) {
	c, _ := newCache(t, sim.NewServer())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Equal(t, c.Run(ctx), nil)
	testkit.ErrorContains(t, c.Run(ctx), "make a new one")
	// A kind that is declared after the end reports that it never syncs.
	testkit.ErrorContains(t, cache.For[*corev1.ConfigMap](c).WaitForSync(t.Context()), "never will be: ConfigMap.v1: stopped")
}
