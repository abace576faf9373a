// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// managed returns a ConfigMap with two field managers and an annotation of kubectl apply.
func managed(name string) *corev1.ConfigMap {
	m := testkit.ConfigMap(name, "1")
	m.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "other": "x"}
	for n, manager := range []string{"kubectl", "operator", "first"} {
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1("{}"),
			Time: &metav1.Time{Time: time.Unix([]int64{100, 300, 200}[n], 0)},
		})
	}
	m.ManagedFields[1].Operation = metav1.ManagedFieldsOperationUpdate
	return m
}

// TestKept: managedFields are dropped unless the scope keeps them.
func TestKept(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(a)
				api.Put(sim.ConfigMaps, managed("a"))
				c, _ := newCache(t, api)
				usual, all := cache.For[*corev1.ConfigMap](c), cache.ForScope[*corev1.ConfigMap](c, cache.Scope{KeepManagedFields: true})
				raw := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}})
				defer testkit.Start(t, c.Run)()
				synced(t, raw)
				api.Put(sim.ConfigMaps, managed("b"))
				for _, name := range []string{"a", "b"} {
					for h, want := range map[*cache.Handle[*corev1.ConfigMap]]int{usual: 0, all: 3} {
						synced(t, h)
						synctest.Wait()
						m, err := h.Get(t.Context(), testkit.Key(name))
						if err != nil || len(m.ManagedFields) != want || len(m.Annotations) != 2 || m.Data["data"] != "1" {
							t.Errorf("%s: got %v, %v", h, m, err)
						}
					}
					if u, err := raw.Get(t.Context(), testkit.Key(name)); err != nil || len(u.GetManagedFields()) != 0 || len(u.GetAnnotations()) != 2 {
						t.Errorf("got %v, %v", u, err)
					}
				}
				testkit.Len(t, c.States(), 3)
			})
		})
	}
}

// TestTransform: a transform changes stored objects and is shared by identity. Its panic is
// reported and breaks nothing else.
func TestTransform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "secret"))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("bad", "secret"))
		c, _ := newCache(t, api)
		noData := cache.NewTransform("no data", func(m *corev1.ConfigMap) {
			if m.Name == "bad" {
				panic("boom")
			}
			m.Data = nil
		})
		maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: noData})
		same := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: noData})
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synced(t, same)
		testkit.Len(t, c.States(), 1)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("later", "secret"))
		synctest.Wait()
		for name, want := range map[string]int{"a": 0, "later": 0, "bad": 1} {
			m, err := maps.Get(t.Context(), testkit.Key(name))
			testkit.NoError(t, err, name)
			testkit.Len(t, m.Data, want, name)
		}
		s := maps.State()
		testkit.Equal(t, s.BrokenCount, 1)
		testkit.Contains(t, s.String(), `(transform no data): synced; broken objects: 1, such as default/bad: the transform "no data" failed: panic: boom`)
		if s.Objects != 3 || s.Bytes < 200 || s.Bytes > 3000 || s.ResourceVersion == "" {
			t.Errorf("%d objects, %d bytes, version %s", s.Objects, s.Bytes, s.ResourceVersion)
		}
	})
}

// TestTransform_Once: a transform is called once for each state of an object that the API server
// sends: of an initial list, of slots that join, and of events. What the cache delivers again, such
// as the last state of an object that leaves its slots, is not transformed again.
func TestTransform_Once(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(a)
				for _, name := range []string{"a1", "a2", "b1"} {
					api.Put(sim.ConfigMaps, testkit.ConfigMap(name, "1"))
				}
				c, _ := newCache(t, api)
				var mu sync.Mutex
				calls := map[string]int{}
				counts := cache.NewTransform("counts", func(m *corev1.ConfigMap) {
					mu.Lock()
					defer mu.Unlock()
					calls[m.Name+" "+m.Data["data"]]++
				})
				slots := cache.NewSlots(slotFunc(byLetter))
				slots.Add('a')
				h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Slots: slots, Transform: counts})
				all := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: cache.NewTransform("too", func(m *corev1.ConfigMap) {
					mu.Lock()
					defer mu.Unlock()
					calls["all "+m.Name+" "+m.Data["data"]]++
				})})
				defer testkit.Start(t, c.Run)()
				synced(t, h)
				synced(t, all)
				for _, name := range []string{"a1", "b1"} {
					api.Put(sim.ConfigMaps, testkit.ConfigMap(name, "2"))
				}
				synctest.Wait()
				slots.Add('b')
				testkit.NoError(t, slots.WaitForSync(t.Context()))
				slots.Remove('a')
				synctest.Wait()
				api.Remove(sim.ConfigMaps, "default", "b1")
				synctest.Wait()
				want := map[string]int{
					"a1 1": 1, "a2 1": 1, "a1 2": 1, "b1 2": 2, // with its delete
					"all a1 1": 1, "all a2 1": 1, "all b1 1": 1, "all a1 2": 1, "all b1 2": 2,
				}
				if mu.Lock(); !maps.Equal(calls, want) {
					t.Errorf("the transform was called for %v, want %v", calls, want)
				}
				mu.Unlock()
			})
		})
	}
}

// TestShared: a shared view returns the stored objects, a handle copies.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		view := maps.Shared()
		defer testkit.Start(t, c.Run)()
		get := func(h *cache.Handle[*corev1.ConfigMap]) *corev1.ConfigMap {
			m, err := h.Get(t.Context(), testkit.Key("a"))
			testkit.NoError(t, err)
			return m
		}
		if seen, copied := get(view), get(maps); seen != get(view) || copied == get(maps) || copied == seen {
			t.Error("the wrong one copies")
		}
		for m, err := range view.All(t.Context(), cache.ListOptions{}) {
			testkit.Equal(t, err, nil)
			testkit.Equal(t, m, get(view))
		}
		view.Release()
		testkit.NotEqual(t, testkit.Err(maps.Get(t.Context(), testkit.Key("a"))), nil, "the handle outlives its view's Release")
	})
}

// TestIndex: objects are found by index values and owners, by namespace, up to a limit. If an index
// function panics, reads of the index fail until the object is deleted.
func TestIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		owned := testkit.ConfigMap("a", "red")
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p-uid"}, {APIVersion: "v1", Kind: "Pod", Name: "q", UID: "q-uid"}}
		other := in("other", "b")
		other.Data = map[string]string{"data": "red"}
		api.Put(sim.ConfigMaps, owned)
		api.Put(sim.ConfigMaps, other)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("c", "blue"))
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		byColour := func(m *corev1.ConfigMap) []string {
			if m.Data["data"] == "none" {
				panic("boom")
			}
			return []string{m.Data["data"]}
		}
		colour := cache.NewIndex(maps, "colour", byColour)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		late := cache.NewIndex(maps, "colour", byColour)
		count := func(x *cache.Index[*corev1.ConfigMap], value string, o cache.ListOptions) int {
			t.Helper()
			list, err := x.List(t.Context(), value, o)
			testkit.Equal(t, err, nil)
			return len(list)
		}
		for _, x := range []*cache.Index[*corev1.ConfigMap]{colour, late} {
			if count(x, "red", cache.ListOptions{}) != 2 || count(x, "red", cache.ListOptions{Namespace: "other"}) != 1 ||
				count(x, "red", cache.ListOptions{Limit: 1}) != 1 || count(x, "green", cache.ListOptions{}) != 0 {
				t.Error("the index does not find what it should")
			}
		}
		for uid, want := range map[string]int{"p-uid": 1, "q-uid": 1, "x": 0} {
			n := 0
			for m, err := range maps.Owned(t.Context(), types.UID(uid), cache.ListOptions{Namespace: "default"}) {
				testkit.NoError(t, err)
				testkit.Equal(t, m.Name, "a")
				n++
			}
			testkit.Equal(t, n, want, fmt.Sprintf("objects are owned by %s", uid))
		}
		api.Put(sim.ConfigMaps, testkit.ConfigMap("c", "none"))
		synctest.Wait()
		testkit.ErrorContains(t, testkit.Err(colour.List(t.Context(), "red", cache.ListOptions{})), `default/c: the index "colour" failed: panic: boom`)
		api.Remove(sim.ConfigMaps, "default", "c")
		synctest.Wait()
		testkit.Equal(t, count(colour, "red", cache.ListOptions{}), 2, "the index does not recover")
		testkit.NotEqual(t, testkit.Err(maps.List(t.Context(), cache.ListOptions{Limit: -1})), nil, "a negative limit is accepted")
	})
}
