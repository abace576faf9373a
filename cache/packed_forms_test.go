// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// inBubble runs a packed cache of widgets and ConfigMaps in a bubble.
func inBubble(t *testing.T, f func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, widgets)
		c, told := packedCache(t, api)
		f(t, api, c, told)
	})
}

// TestPacked_Transform: a transform's changes are stored in both forms. If it panics, changes the
// identity or returns what cannot be encoded, State names the object, which stays readable.
func TestPacked_Transform(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: cache.NewTransform("odd", func(m *corev1.ConfigMap) {
			m.Data["data"] += "+"
			switch m.Name {
			case "panic":
				panic("oops")
			case "renamed":
				m.Name, m.UID, m.ResourceVersion = "other", "other", "1"
			}
		})})
		loose := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: widgetKind, Transform: cache.NewTransform("loose", func(u *unstructured.Unstructured) {
			switch delete(u.Object, "size"); u.GetName() {
			case "unknown":
				u.Object["size"] = func() {}
			case "kind":
				u.SetKind("Gadget")
			default:
				u.Object["added"] = int64(7)
			}
		})})
		for _, name := range []string{"panic", "renamed", "good"} {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(name, "1"))
		}
		for _, name := range []string{"unknown", "kind", "good"} {
			api.Put(widgets, widget(name, int64(3)))
		}
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synced(t, loose)
		for _, name := range []string{"panic", "renamed", "good"} {
			m, err := maps.Get(t.Context(), testkit.Key(name))
			if err != nil || m.Name != name || m.UID == "other" || m.ResourceVersion == "1" || !strings.HasPrefix(m.Data["data"], "1+") {
				t.Errorf("%s: got %v, %v", name, m, err)
			}
		}
		testkit.Equal(t, maps.State().BrokenCount, 2)
		testkit.Contains(t, fmt.Sprint(maps.State().Broken), `default/panic: the transform "odd" failed: panic: oops`)
		testkit.Contains(t, fmt.Sprint(maps.State().Broken), `default/renamed: the transform "odd" failed: it changed`)
		good, err := loose.Get(t.Context(), testkit.Key("good"))
		if err != nil || good.Object["added"] != int64(7) || good.Object["size"] != nil {
			t.Errorf("got %v, %v", good, err)
		}
		for _, name := range []string{"unknown", "kind"} { // the API server's state
			u, err := loose.Get(t.Context(), testkit.Key(name))
			if err != nil || u.Object["size"] != int64(3) || u.GetKind() != "Widget" {
				t.Errorf("got %v, %v", u, err)
			}
		}
		testkit.Equal(t, loose.State().BrokenCount, 2)
		testkit.Count(t, fmt.Sprint(loose.State().Broken), `the result of the transform "loose" cannot be encoded`, 2)
	})
}

// TestPacked_TransformOfUndecodable: an object that does not fit its Go type is stored as it is,
// and named, although there is a transform.
func TestPacked_TransformOfUndecodable(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		h := cache.ForScope[*Widget](c, cache.Scope{Transform: cache.NewTransform("t", func(w *Widget) { w.Size++ })})
		api.Put(widgets, widget("odd", "large"))
		api.Put(widgets, widget("even", int64(2)))
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		if s := h.State(); s.BrokenCount != 1 || !strings.HasPrefix(s.Broken[0], "default/odd: it cannot be decoded") || s.Phase != hook.Synced {
			t.Errorf("got %s", s)
		}
		api.Put(widgets, widget("odd", int64(4)))
		synctest.Wait()
		if w, err := h.Get(t.Context(), testkit.Key("odd")); err != nil || w.Size < 5 || h.State().BrokenCount != 0 {
			t.Errorf("got %v, %v, %s", w, err, h.State())
		}
	})
}

// TestPacked_ErrorsOfRelists (S2): if the delete of an undecodable object is missed, State forgets
// it.
func TestPacked_ErrorsOfRelists(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		api.Put(widgets, widget("odd", "large"))
		h := cache.For[*Widget](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		if _, err := h.Get(t.Context(), testkit.Key("odd")); err == nil || h.State().BrokenCount != 1 {
			t.Fatalf("got %v, %s", err, h.State())
		}
		api.Intercept(refuse)
		api.CutWatches()
		synctest.Wait()
		api.Remove(widgets, "default", "odd")
		api.Expire()
		api.Intercept(nil)
		time.Sleep(30 * time.Minute) // it is forgotten with the next watch
		synctest.Wait()
		testkit.ErrorSatisfies(t, testkit.Err(h.Get(t.Context(), testkit.Key("odd"))), apierrors.IsNotFound)
		testkit.Equal(t, h.State().BrokenCount, 0, h.State())
	})
}

// TestPacked_ScopeChanges: an object that leaves the scope, by namespace or name, is a delete with
// its last state, even if that does not fit its Go type. It may return.
func TestPacked_ScopeChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		names, namespaces := cache.NewSet(testkit.Key("a"), testkit.Key("odd")), cache.NewSet("default")
		byName := cache.ForScope[*Widget](c, cache.Scope{Names: names})
		bySpace := cache.ForScope[*Widget](c, cache.Scope{Namespaces: namespaces})
		size := cache.NewIndex(byName, "size", func(w *Widget) []string { return []string{fmt.Sprint(w.Size)} })
		for _, name := range []string{"a", "b"} {
			api.Put(widgets, widget(name, int64(1)))
		}
		api.Put(widgets, widget("odd", "large"))
		first, some := subscribe(t, byName)
		defer first.Close()
		second, all := subscribe(t, bySpace)
		defer second.Close()
		defer testkit.Start(t, c.Run)()
		synced(t, byName)
		synced(t, bySpace)
		expect := func(e *events, want ...string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			got := strings.Split(e.take(), ", ")
			slices.Sort(got)
			testkit.SlicesEqual(t, got, want)
		}
		expect(some, "add a")
		expect(all, "add a", "add b")
		names.Add(testkit.Key("b"))
		names.Remove(testkit.Key("a"), testkit.Key("odd"))
		expect(some, "add b", "missed a", "missed odd")
		if list, err := size.List(t.Context(), "1", cache.ListOptions{}); err != nil || len(list) != 1 || list[0].Name != "b" {
			t.Errorf("got %v, %v", list, err)
		}
		names.Add(testkit.Key("a"))
		expect(some, "add a")
		namespaces.Replace("other")
		expect(all, "missed a", "missed b", "missed odd")
		namespaces.Add("default")
		expect(all, "add a", "add b")
	})
}

// TestS10_CatchUp_Packed: CatchUp of a handle, a subscription and an adopted handle returns after
// the events, also if an object does not fit its Go type any more.
func TestS10_CatchUp_Packed(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		h := cache.For[*Widget](c)
		adopted := cache.Adopt[*Widget](c, informerOf(h), cache.AdoptOptions{})
		s, e := subscribe(t, h)
		defer s.Close()
		foreign, f := subscribe(t, adopted)
		defer foreign.Close()
		api.Put(widgets, widget("a", int64(1)))
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		catchUp := func(want string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for _, err := range []error{h.CatchUp(ctx), s.CatchUp(ctx), adopted.CatchUp(ctx), foreign.CatchUp(ctx)} {
				testkit.Equal(t, err, nil)
			}
			testkit.Equal(t, e.take(), want)
			testkit.Equal(t, f.take(), want)
		}
		catchUp("add a")
		api.Put(widgets, widget("a", int64(2)))
		catchUp("update a")
		api.Put(widgets, widget("a", "large"))
		catchUp("")
		api.Put(widgets, widget("b", "large"))
		catchUp("")
		api.Put(widgets, widget("a", int64(2)))
		catchUp("add a")
		api.Remove(widgets, "default", "b")
		catchUp("delete b")
	})
}

// TestPacked_Adopt: a handle adopted from a packed handle's informer reads what that has, as
// copies.
func TestPacked_Adopt(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		h := cache.For[*corev1.ConfigMap](c)
		adopted := cache.Adopt[*corev1.ConfigMap](c, informerOf(h), cache.AdoptOptions{})
		data := cache.NewIndex(adopted, "data", func(m *corev1.ConfigMap) []string { return []string{m.Data["data"]} })
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		for range 2 {
			m, err := adopted.Get(t.Context(), testkit.Key("a"))
			if err != nil || m.Data["data"] != "1" {
				t.Fatalf("got %v, %v", m, err)
			}
			m.Data["data"] = "mine"
			list, err := data.List(t.Context(), "1", cache.ListOptions{})
			if err != nil || len(list) != 1 || list[0].Data["data"] != "1" {
				t.Fatalf("got %v, %v", list, err)
			}
			list[0].Data["data"] = "mine"
		}
	})
}

// TestPacked_LateIndex: an index that is declared on a synced handle finds its objects. An
// object that cannot be decoded is in its error.
func TestPacked_LateIndex(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		h := cache.For[*Widget](c)
		api.Put(widgets, widget("a", int64(1)))
		api.Put(widgets, widget("odd", "large"))
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		size := cache.NewIndex(h, "size", func(w *Widget) []string {
			if w.Size == 13 {
				panic("oops")
			}
			return []string{fmt.Sprint(w.Size)}
		})
		var bad []string
		has := func(value string, want ...string) {
			t.Helper()
			synctest.Wait()
			list, err := size.List(t.Context(), value, cache.ListOptions{})
			testkit.SlicesEqual(t, leftOut(err), bad, list, err)
			var got []string
			for _, w := range list {
				got = append(got, w.Name)
			}
			slices.Sort(got)
			testkit.SlicesEqual(t, got, want, err)
		}
		bad = []string{"odd"}
		has("1", "a")
		has("0")
		api.Put(widgets, widget("odd", int64(1)))
		bad = nil
		has("1", "a", "odd")
		api.Put(widgets, widget("a", "large"))
		bad = []string{"a"}
		has("1", "odd")
		api.Put(widgets, widget("odd", int64(13)))
		synctest.Wait()
		testkit.ErrorContains(t, testkit.Err(size.List(t.Context(), "1", cache.ListOptions{})), `default/odd: the index "size" failed: panic: oops`)
		api.Put(widgets, widget("odd", int64(1)))
		has("1", "odd")
	})
}

// TestPacked_CacheReads: Cache.Get and Cache.List of packed handles return the objects in each
// form, with their kind. Handles of metadata are not packed.
func TestPacked_CacheReads(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		api.Put(widgets, widget("a", int64(1)))
		api.Put(widgets, widget("odd", "large"))
		typed := cache.For[*Widget](c)
		loose := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: widgetKind})
		meta := cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: widgetKind})
		testkit.Equal(t, meta.State().Storage, "decoded")
		testkit.Equal(t, typed.State().Storage, "packed")
		testkit.Equal(t, loose.State().Storage, "packed")
		defer testkit.Start(t, c.Run)()
		ctx := t.Context()
		var w Widget
		testkit.NoError(t, c.Get(ctx, testkit.Key("a"), &w))
		testkit.Equal(t, w.Size, 1)
		testkit.Equal(t, w.Kind, "Widget")
		before := w
		testkit.NotEqual(t, c.Get(ctx, testkit.Key("odd"), &w), nil)
		testkit.DeepEqual(t, w, before)
		var list WidgetList
		if err := c.List(ctx, &list, cache.ListOptions{}); len(leftOut(err)) != 1 || len(list.Items) != 1 || list.Items[0].Name != "a" {
			t.Errorf("got %v, %v", list, err)
		}
		u, all := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(widgetKind)
		all.SetGroupVersionKind(widgetKind.GroupVersion().WithKind("WidgetList"))
		testkit.NoError(t, c.Get(ctx, testkit.Key("odd"), u))
		testkit.Equal(t, u.Object["size"], "large")
		if err := c.List(ctx, all, cache.ListOptions{}); err != nil || len(all.Items) != 2 || all.Items[0].GetKind() != "Widget" {
			t.Errorf("got %v, %v", all, err)
		}
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(widgetKind)
		testkit.Equal(t, c.Get(ctx, testkit.Key("odd"), m), nil)
		testkit.Equal(t, m.Name, "odd")
	})
}

// TestPacked_Decodes: one Get decodes once, and metadata never.
func TestPacked_Decodes(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		h := cache.For[*corev1.ConfigMap](c)
		for n := range 10 {
			m := testkit.ConfigMap(fmt.Sprint("m", n), "1")
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "owner"}}
			api.Put(sim.ConfigMaps, m)
		}
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		testkit.Equal(t, h.State().Decodes, 0, "decodes for the initial list")
		testkit.Equal(t, testkit.Err(h.Get(t.Context(), testkit.Key("m1"))), nil)
		testkit.Equal(t, h.State().Decodes, 1)
		for range h.Owned(t.Context(), types.UID("owner"), cache.ListOptions{}) {
		}
		testkit.Equal(t, h.State().Decodes, 11, "decodes for a Get and ten reads by owner")
		testkit.Len(t, testkit.Must(h.List(t.Context(), cache.ListOptions{Limit: 3})), 3)
		testkit.Equal(t, h.State().Decodes, 14)
	})
}

// TestPacked_Formats (F1): an API server that answers in JSON for a kind with protobuf, and changes
// its format between requests, loses nothing.
func TestPacked_Formats(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		json := true
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if json = !json; json {
				return inJSON(r)
			}
			return nil, nil
		})
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "0"))
		h := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		for n := range 6 {
			api.CutWatches()
			time.Sleep(10 * time.Second)
			api.Put(sim.ConfigMaps, testkit.ConfigMap("a", fmt.Sprint(n)))
			synctest.Wait()
			if m, err := h.Get(t.Context(), testkit.Key("a")); err != nil || m.Data["data"] != fmt.Sprint(n) || m.Kind != "" {
				t.Errorf("got %v, %v", m, err)
			}
		}
	})
}
