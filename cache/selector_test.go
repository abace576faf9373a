// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestC6_Selectors: a write that a selector excludes is shown if the store does not have the
// object. The store never has it here.
func TestC6_Selectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gvk := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
		meta := metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"app": "web"}}
		typed := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "one"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		typed.Spec.HostNetwork = true
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		testkit.NoError(t, err)
		untyped := &unstructured.Unstructured{Object: content}
		untyped.SetGroupVersionKind(gvk)
		newer := untyped.DeepCopy()
		newer.SetAPIVersion("v2")
		partial := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: meta}
		scale := &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
		bare := &corev1.Pod{ObjectMeta: meta}
		const in, out = "behind", "shown"

		api := sim.NewServer(sim.Pods)
		dropBookmarks(api)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			r.Query.Del("fieldSelector") // some do not exist for Pods
			return nil, nil
		})
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		check := func(s cache.Scope, object runtime.Object, want string) {
			t.Helper()
			h := cache.ForScope[*corev1.Pod](c, s)
			synced(t, h)
			w := consistency.Write{Resource: schema.GroupResource{Resource: "pods"}, Namespace: "default", Name: "a", UID: "never", ResourceVersion: "1000", Object: object}
			expect(t, declared(h), w, want, h.String())
			w.Gone = true
			expect(t, declared(h), w, want, "gone, "+h.String())
			h.Release()
		}
		for selector, want := range map[string]string{"app=web": in, "app": in, "app in (web,db)": in, "app=db": out, "!app": out, "other": out, "app=web,other": out} {
			parsed, err := labels.Parse(selector)
			testkit.NoError(t, err)
			for _, object := range []runtime.Object{typed, untyped, newer, partial} {
				check(cache.Scope{Labels: parsed}, object, want)
			}
			check(cache.Scope{Labels: parsed}, nil, in)
			check(cache.Scope{Labels: parsed}, scale, in)
		}
		for selector, want := range map[string]struct{ whole, metadata, bare string }{
			"metadata.name=a":                      {in, in, in},
			"metadata.name=b":                      {out, out, out},
			"metadata.namespace!=default":          {out, out, out},
			"spec.nodeName=one":                    {in, in, out},
			"spec.nodeName=two":                    {out, in, out},
			"spec.nodeName!=one":                   {out, in, in},
			"spec.nodeName!=":                      {in, in, out},
			"spec.nodeName=":                       {out, in, in},
			"status.phase=Running":                 {in, in, out},
			"status.phase!=Running,metadata.name=": {out, out, out},
			"spec.hostNetwork=true":                {in, in, out},
			"spec.hostNetwork=false":               {out, in, in}, // a missing field may mean false
			"spec.hostNetwork!=false":              {in, in, in},
			"status.successful=1":                  {in, in, in}, // of Jobs; not a path
			"metadata.labels=x":                    {in, in, in}, // not a value
			"metadata.name.x=y":                    {in, in, in}, // not a path
		} {
			parsed, err := fields.ParseSelector(selector)
			testkit.NoError(t, err)
			s := cache.Scope{Fields: parsed}
			check(s, typed, want.whole)
			check(s, untyped, want.whole)
			check(s, partial, want.metadata)
			check(s, newer, want.metadata) // its fields may differ
			check(s, bare, want.bare)
			check(s, nil, in)
			check(s, scale, in)
		}
	})
}

// TestC6_LeavesTheSelector: a write that takes an object out of a selector waits until the store
// has dropped it. One that brings it in waits until the store has it.
func TestC6_LeavesTheSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Lag(lag)
		c, _ := newCache(t, api)
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"name": "a"})})
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		d := declared(h)
		for _, r := range []string{"configmaps", "secrets"} {
			testkit.Equal(t, d.Selects(schema.GroupResource{Resource: r}), r == "configmaps", fmt.Sprintf("Selects(%s)", r))
		}
		everything := cache.For[*corev1.ConfigMap](c)
		if !declared(everything).Selects(schema.GroupResource{Resource: "configmaps"}) || declared().Selects(schema.GroupResource{}) {
			t.Error("another handle of the cache has a selector; who has declared nothing asks for nothing")
		}
		other, _ := newCache(t, api)
		testkit.Equal(t, declared(cache.For[*corev1.ConfigMap](other)).Selects(schema.GroupResource{Resource: "configmaps"}), false, "no handle of the cache has a selector, and yet")
		write := func(label, want string) {
			t.Helper()
			m := testkit.ConfigMap("a", label)
			m.Labels["name"] = label
			w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, m))
			expect(t, d, w, want, "at once, "+label)
			if want == "behind" {
				n := notify(t, d, w)
				time.Sleep(lag)
				n.called(1, label)
			}
			expect(t, d, w, "shown", "later, "+label)
		}
		write("b", "behind")
		write("c", "shown") // the store does not have it and never will
		write("a", "behind")
		write("c", "behind")
		// The written object is unknown: only the version of a bookmark shows the write.
		m := testkit.ConfigMap("b")
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, m))
		w.Object = nil
		expect(t, d, w, "behind", "unknown")
		time.Sleep(time.Minute + lag)
		expect(t, d, w, "shown", "after a bookmark")
		dropBookmarks(api)
		api.CutWatches()
		time.Sleep(time.Second)
		w = writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("b", "2")))
		w.Object = nil
		time.Sleep(2 * time.Minute)
		expect(t, d, w, "behind", "without bookmarks")
	})
}
