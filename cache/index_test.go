// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestIndexOfFields: an index that reads one field of packed objects is computed when that changes.
func TestIndexOfFields(t *testing.T) {
	t.Run("protobuf", func(t *testing.T) {
		testIndexOfFields(t, sim.ConfigMaps, cache.Scope{}, func(v string, label bool) *corev1.ConfigMap {
			return labelled(testkit.ConfigMap("a", v), label)
		}, func(m *corev1.ConfigMap) string { return m.Data["data"] }, "data")
	})
	t.Run("unstructured", func(t *testing.T) {
		testIndexOfFields(t, widgets, cache.Scope{Kind: widgetKind}, func(v string, label bool) *unstructured.Unstructured {
			return labelled(widget("a", v), label)
		}, func(u *unstructured.Unstructured) string {
			v, _, _ := unstructured.NestedString(u.Object, "size")
			return v
		}, "size")
	})
}

func labelled[T cache.Object](o T, label bool) T {
	o.SetLabels(map[string]string{"label": fmt.Sprint(label)})
	return o
}

func testIndexOfFields[T cache.Object](t *testing.T, of sim.Resource, s cache.Scope, object func(v string, label bool) T, value func(T) string, field string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(of)
		c, _ := newCache(t, api)
		s.Storage = cache.Packed
		h := cache.ForScope[T](c, s)
		calls, seen := 0, ""
		x := cache.NewIndex(h, "x", func(o T) []string {
			calls++
			seen = fmt.Sprint(o.GetNamespace(), "/", o.GetName(), " ", o.GetLabels())
			return []string{value(o)}
		}, field)
		whole := cache.NewIndex(h, "whole", func(o T) []string { return []string{value(o) + o.GetLabels()["label"]} })
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		for n, step := range []struct {
			value string
			label bool
			calls int
		}{{"one", false, 1}, {"one", true, 1}, {"two", true, 2}, {"two", false, 2}} {
			api.Put(of, object(step.value, step.label))
			synctest.Wait()
			found, err := x.List(t.Context(), step.value, cache.ListOptions{})
			both, failed := whole.List(t.Context(), step.value+fmt.Sprint(step.label), cache.ListOptions{})
			if err != nil || failed != nil || len(found) != 1 || len(both) != 1 || found[0].GetLabels()["label"] != fmt.Sprint(step.label) {
				t.Errorf("step %d: found %v, %v; with both %v, %v", n, found, err, both, failed)
			}
			testkit.Equal(t, calls, step.calls, fmt.Sprintf("step %d", n))
			testkit.Equal(t, seen, "default/a map[]", fmt.Sprintf("step %d", n))
		}
		testkit.Len(t, testkit.Must(x.List(t.Context(), "one", cache.ListOptions{})), 0, "the value before")
	})
}

// TestIndexBlocks: while the values of a packed object are computed, others are read.
func TestIndexBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "one"))
		c, _ := newCache(t, api)
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Storage: cache.Packed})
		blocks := make(chan struct{})
		var calls atomic.Int32
		x := cache.NewIndex(h, "x", func(m *corev1.ConfigMap) []string {
			calls.Add(1)
			if m.Data["data"] == "two" {
				<-blocks
			}
			return []string{m.Data["data"]}
		})
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "two"))
		synctest.Wait()
		before, err := x.List(t.Context(), "one", cache.ListOptions{})
		close(blocks)
		testkit.NoError(t, err, "during the update")
		testkit.Len(t, before, 1, "during the update")
		synctest.Wait()
		testkit.Len(t, testkit.Must(x.List(t.Context(), "two", cache.ListOptions{})), 1, "after the update")
		testkit.Equal(t, calls.Load(), 2, "after the update")
	})
}

// TestIndexOfAMemberThatReturns: an index that was declared while a namespace was not in the scope.
func TestIndexOfAMemberThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "one"))
		c, _ := newCache(t, api)
		set := cache.NewSet("default", "other")
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: set})
		// It keeps the informer.
		cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("default")})
		values := func(m *corev1.ConfigMap) []string { return []string{m.Data["data"]} }
		early := cache.NewIndex(h, "early", values)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		set.Remove("default")
		synctest.Wait()
		late := cache.NewIndex(h, "late", values)
		set.Add("default")
		for name, x := range map[string]*cache.Index[*corev1.ConfigMap]{"early": early, "late": late} {
			list, err := x.List(t.Context(), "one", cache.ListOptions{})
			testkit.NoError(t, err, name)
			testkit.Len(t, list, 1, name)
		}
	})
}

// TestIndexOfFieldsThatAreNotEnough: kind alone is no object, so the whole one is decoded.
func TestIndexOfFieldsThatAreNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Put(widgets, widget("a", int64(1)))
		c, _ := newCache(t, api)
		h := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: widgetKind, Storage: cache.Packed})
		x := cache.NewIndex(h, "x", func(u *unstructured.Unstructured) []string { return []string{u.GetKind()} }, "kind")
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		for kind, want := range map[string]int{"Widget": 1, "Gadget": 0} {
			list, err := x.List(t.Context(), kind, cache.ListOptions{})
			testkit.NoError(t, err, kind)
			testkit.Len(t, list, want, kind)
		}
	})
}

func TestIndexBadFields(t *testing.T) {
	for want, fields := range map[string][]string{
		`*v1.ConfigMap has no field "spec" in JSON`: {"spec"},
		`the field "data" is named twice`:           {"data", "data"},
		`a field has no name`:                       {""},
	} {
		c, _ := newCache(t, sim.NewServer(sim.ConfigMaps))
		h := cache.For[*corev1.ConfigMap](c)
		x := cache.NewIndex(h, "x", func(*corev1.ConfigMap) []string { return nil }, fields...)
		_, err := x.List(context.Background(), "", cache.ListOptions{})
		testkit.ErrorContains(t, err, want)
		testkit.ErrorContains(t, err, `"x"`)
	}
}
