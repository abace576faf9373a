// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestP7_Decodes: a packed cache with Slots decodes no foreign object: not for its initial list,
// nor for an event, even with an index and a subscription that decode what arrives.
// One Get for each kept object is one decode each.
func TestP7_Decodes(t *testing.T) {
	for lists, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run("protobuf/"+lists, func(t *testing.T) {
			decodes[*corev1.ConfigMap](t, a, cache.Scope{}, sim.ConfigMaps, func(name string, size int64) metav1.Object {
				return testkit.ConfigMap(name, fmt.Sprint(size))
			})
		})
		jsonOf := func(name string, size int64) metav1.Object { return widget(name, size) }
		t.Run("JSON/"+lists, func(t *testing.T) { decodes[*Widget](t, a, cache.Scope{}, widgets, jsonOf) })
		t.Run("unstructured/"+lists, func(t *testing.T) {
			decodes[*unstructured.Unstructured](t, a, cache.Scope{Kind: widgetKind}, widgets, jsonOf)
		})
	}
}

// decodes counts the decodes of a handle that keeps 8 of 40 objects in 10 slots.
func decodes[T cache.Object](t *testing.T, a answer, s cache.Scope, kind sim.Resource, of func(name string, size int64) metav1.Object) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, widgets)
		api.Intercept(a)
		each := func(letters string, do func(name string)) {
			for _, letter := range letters {
				for n := range 4 {
					do(fmt.Sprintf("%c%d", letter, n))
				}
			}
		}
		each("abcdefghij", func(name string) { api.Put(kind, of(name, 1)) })
		c, _ := packedCache(t, api)
		s.Slots = cache.NewSlots(slotFunc(byLetter))
		s.Slots.Add('a', 'b')
		h := cache.ForScope[T](c, s)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		expect := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			testkit.Equal(t, h.State().Decodes, want, when)
			testkit.Equal(t, h.State().Objects, 8, when)
		}
		foreign := func() {
			each("cdefghij", func(name string) {
				api.Put(kind, of(name, 2))
				api.Put(kind, of(name+"-new", 1))
				api.Remove(kind, "default", name+"-new")
			})
		}
		expect("initial list", 0)
		each("ab", func(name string) {
			testkit.Equal(t, testkit.Err(h.Get(t.Context(), testkit.Key(name))), nil)
		})
		expect("one Get each", 8)
		foreign()
		expect("foreign events", 8)
		readers(t, h)
		before := h.State().Decodes
		foreign()
		expect("foreign events, with an index and a subscription", before)
		api.Put(kind, of("a1", 2))
		synctest.Wait()
		testkit.NotEqual(t, h.State().Decodes, before, "neither the index nor the subscription decodes what arrives")
	})
}

// readers adds an index and a subscription to a handle.
func readers[T cache.Object](t *testing.T, h *cache.Handle[T]) {
	t.Helper()
	names := cache.NewIndex(h, "name", func(o T) []string { return []string{o.GetName()} })
	testkit.Equal(t, testkit.Err(names.List(t.Context(), "a1", cache.ListOptions{})), nil)
	sub, _ := subscribe(t, h)
	testkit.Equal(t, sub.WaitForSync(t.Context()), nil)
}

// TestP7_ForeignObjectsAreNotRead: a cache drops a foreign object before it decodes or packs it. To
// pack JSON with two metadata, it must decode the object. Objects that it cannot decode show
// whether it has tried.
func TestP7_ForeignObjectsAreNotRead(t *testing.T) {
	for _, storage := range []cache.Storage{cache.Packed, cache.Decoded} {
		t.Run(storage.String(), func(t *testing.T) { foreignObjectsAreNotRead(t, storage) })
	}
}

func foreignObjectsAreNotRead(t *testing.T, storage cache.Storage) {
	t.Helper()
	for wanted, broken := range map[string]int{"a": 0, "ab": 2} {
		for lists, wrap := range map[string]func(answer) answer{"streaming": func(a answer) answer { return a }, "listing": noStreaming} {
			t.Run(wanted+"/"+lists, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(widgets)
					api.Intercept(wrap(only(widgets, oddWidgets)))
					c, told := cacheOf(t, api, storage)
					slots := cache.NewSlots(slotFunc(byLetter))
					slots.Add([]byte(wanted)...)
					h := cache.ForScope[*Widget](c, cache.Scope{Slots: slots})
					defer testkit.Start(t, c.Run)()
					synced(t, h)
					synctest.Wait()
					testkit.Equal(t, h.State().BrokenCount, broken)
					testkit.Equal(t, h.State().Objects, 2)
					testkit.Equal(t, told.take() == "", broken == 0)
				})
			})
		}
	}
}

// oddWidgets has the widgets a1 and, in its list, b1, and sends a2 and b2. It answers one list and
// one watch. b1 and b2 have two metadata, and do not fit their Go type.
func oddWidgets(r *sim.Request) (*http.Response, error) {
	object := func(name string, version int, size string) string {
		return fmt.Sprintf(`{"kind":"Widget","apiVersion":"test.dev/v1","metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":"%d"},"size":%s}`,
			name, name, version, size)
	}
	event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }
	odd := `"large","metadata":{"labels":{}}`
	first := []string{object("a1", 5, "1"), object("b1", 6, odd)}
	later := event("ADDED", object("a2", 7, "1")) + event("ADDED", object("b2", 8, odd))
	if r.Verb == "list" {
		return r.Send(`{"kind":"WidgetList","apiVersion":"test.dev/v1","metadata":{"resourceVersion":"6"},"items":[` + strings.Join(first, ",") + `]}`)
	}
	if !r.Streaming() {
		return r.SendAndHang(later)
	}
	end := event("BOOKMARK", `{"kind":"Widget","apiVersion":"test.dev/v1","metadata":{"resourceVersion":"6","annotations":{"`+metav1.InitialEventsAnnotationKey+`":"true"}}}`)
	return r.SendAndHang(event("ADDED", first[0]) + event("ADDED", first[1]) + end + later)
}
