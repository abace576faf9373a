// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
)

// Sized is a Widget whose UnmarshalJSON requires the size.
type Sized struct{ Widget }

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sized) UnmarshalJSON(data []byte) error {
	var required struct{ Size *int64 }
	if err := json.Unmarshal(data, &required); err != nil {
		return err
	}
	if required.Size == nil {
		return errors.New("size is required")
	}
	return json.Unmarshal(data, &s.Widget)
}

// DeepCopyObject implements runtime.Object.
func (s *Sized) DeepCopyObject() runtime.Object {
	return &Sized{*s.Widget.DeepCopyObject().(*Widget)}
}

// TestS4_ATypeThatRefusesMetadata: the delete of an object that cannot be decoded ends its error,
// also if no object of the type can stand for it.
func TestS4_ATypeThatRefusesMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Put(widgets, widget("odd", "large"))
		api.Put(widgets, widget("good", int64(1)))
		scheme := runtime.NewScheme()
		scheme.AddKnownTypeWithName(widgetKind, &Sized{})
		scheme.AddKnownTypeWithName(widgetKind.GroupVersion().WithKind("WidgetList"), &WidgetList{})
		cl, err := client.New(api.Config(), client.Options{Scheme: scheme})
		testkit.NoError(t, err)
		c := cache.New(cl, cache.Options{Storage: cache.Decoded})
		h := cache.For[*Sized](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		testkit.Equal(t, h.State().BrokenCount, 1, "before the delete", h.State())
		api.Remove(widgets, "default", "odd")
		synctest.Wait()
		testkit.Len(t, testkit.Must(h.List(t.Context(), cache.ListOptions{})), 1, "after the delete")
		testkit.Equal(t, h.State().Phase, hook.Synced, "after the delete")
	})
}

// TestListKind: a CRD may choose any kind for its lists.
func TestListKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Intercept(noStreaming(only(widgets, func(r *sim.Request) (*http.Response, error) {
			if r.Verb != "list" {
				return r.SendAndHang("")
			}
			return r.Send(`{"apiVersion":"test.dev/v1","kind":"Widgetry","metadata":{"resourceVersion":"1"},"items":[` +
				`{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"namespace":"default","name":"a","uid":"u","resourceVersion":"1"},"size":1}]}`)
		})))
		c, _ := cacheOf(t, api, storages.Current())
		typed, raw := cache.For[*Widget](c), cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: widgetKind})
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		for _, s := range []hook.InformerState{typed.State(), raw.State()} {
			testkit.Equal(t, s.Phase, hook.Synced, s)
			testkit.Equal(t, s.Objects, 1, s)
		}
	})
}

// manyWidgets are more than one goroutine reads, and more than one copies.
func manyWidgets(api *sim.Server) {
	for n := range 1000 {
		api.Put(widgets, widget(fmt.Sprint("w", n), int64(1)))
	}
}

// TestList_Panics: a panic of an object's method reaches the caller, who may recover it, whichever
// goroutine has copied the object.
func TestList_Panics(t *testing.T) {
	for _, name := range []string{"w0", "w777", "w999"} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(widgets)
			manyWidgets(api)
			c, _ := cacheOf(t, api, cache.Decoded)
			h := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: widgetKind, Transform: cache.NewTransform("int", func(u *unstructured.Unstructured) {
				if u.GetName() == name {
					u.Object["size"] = 3 // DeepCopyObject takes int64
				}
			})})
			defer testkit.Start(t, c.Run)()
			synced(t, h)
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "cannot deep copy int") {
					t.Errorf("%s: recovered %v", name, p)
				}
			}()
			_, err := h.List(t.Context(), cache.ListOptions{})
			t.Errorf("%s: no panic, %v", name, err)
		})
	}
}

// TestS4_ATransformThatExits: a transform that ends its goroutine, as t.FailNow does, loses no
// other object. The informer is failing, with the reason.
func TestS4_ATransformThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Intercept(noStreaming(nil))
		manyWidgets(api)
		c, _ := cacheOf(t, api, storages.Current())
		h := cache.ForScope[*Widget](c, cache.Scope{Transform: cache.NewTransform("exits", func(w *Widget) {
			if w.Name == "w500" {
				goruntime.Goexit()
			}
		})})
		defer testkit.Start(t, c.Run)()
		time.Sleep(time.Minute)
		testkit.Equal(t, h.State().Phase, hook.Failing)
		testkit.ErrorContains(t, h.State().Err, "a transform or a method UnmarshalJSON ended its goroutine")
	})
}

// TestP7_ATransformOfOwners: a transform cannot take the ownerReferences that decide about the
// slot: an object leaves with its slot.
func TestP7_ATransformOfOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		m, yes := testkit.ConfigMap("x"), true
		owner := api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a1"}})
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: owners.Kind, Name: "a1", UID: owner.GetUID(), Controller: &yes}}
		api.Put(sim.ConfigMaps, m)
		c, _ := newCache(t, api)
		slots := cache.NewSlots(slotFunc(byLetter))
		slots.Add('a')
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Slots: slots, SlotOwner: owners, Transform: cache.NewTransform("no owners", func(m *corev1.ConfigMap) { m.OwnerReferences = nil })})
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		testkit.Equal(t, h.State().Objects, 1)
		testkit.Contains(t, h.State().String(), `the transform "no owners" changed the ownerReferences, which decide about the slot`)
		slots.Remove('a')
		synctest.Wait()
		testkit.Equal(t, h.State().Objects, 0, "after its slot has left: objects")
	})
}
