// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
)

// TestC6_Unclear: a failing informer is behind until it recovers. If versions are not numbers,
// Behind returns an error with the reason.
func TestC6_Unclear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		a := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		c, _ := newCache(t, api)
		maps, secrets := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Secret](c)
		d := declared(maps, secrets)
		api.Intercept(only(sim.Secrets, forbid))
		stop := testkit.Start(t, c.Run)
		defer stop()
		synced(t, maps)
		time.Sleep(5 * time.Second)
		why := func(w consistency.Write, want string) {
			t.Helper()
			missing, err := d.Behind(w)
			testkit.Equal(t, missing, nil)
			testkit.ErrorContains(t, err, want)
		}
		waits := func(w consistency.Write, want string) {
			t.Helper()
			missing, err := d.Behind(w)
			if missing == nil || err != nil || !missing.Failing() || !strings.Contains(missing.String(), want) {
				t.Errorf("got %v, %v; want a lag of an informer that fails, with %q", missing, err, want)
			}
		}
		s := a
		s.Resource.Resource = "secrets"
		waits(s, "Secret.v1 is failing (no right to watch) and does not show the write of default/a at 2")
		waits(goneOf(s), "does not show the deletion of default/a")
		odd := a
		odd.ResourceVersion = "first"
		why(odd, `the version "first" is not a number`)
		odd.Gone = true
		why(odd, `the version "first" is not a number`)
		unread := a
		unread.ResourceVersion = ""
		why(unread, "unclear whether ConfigMap.v1 shows the write of default/a: its version is not known")
		unread.Unknown = "there was no answer"
		why(unread, "there was no answer")
		// A synced informer that fails later still shows its earlier writes.
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		api.CutWatches()
		b := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("b")))
		time.Sleep(time.Minute)
		expect(t, d, a, "shown", "failing, but it shows it")
		waits(b, "does not show the write of default/b at 3")
		unread.Unknown = "there was no answer"
		waits(unread, "ConfigMap.v1 is failing")
		stop()
		why(b, "stopped")
	})
}

// TestC6_OddVersions: if the store's version is not a number, an equal version is shown.
func TestC6_OddVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Intercept(noStreaming(func(r *sim.Request) (*http.Response, error) {
			switch {
			case r.Verb == "list" && r.Resource.Resource == "configmaps":
				return r.Send(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"x2"},"items":[
					{"metadata":{"namespace":"default","name":"a","uid":"1","resourceVersion":"x1"}},
					{"metadata":{"namespace":"default","name":"held","uid":"2","resourceVersion":"x2","deletionTimestamp":"2026-01-01T00:00:00Z"}}]}`)
			case r.Verb == "watch":
				return r.Hang()
			}
			return nil, nil
		}))
		c, _ := newCache(t, api)
		h := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}})
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		d := declared(h)
		w := consistency.Write{Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Name: "a", UID: "1", ResourceVersion: "x1"}
		expect(t, d, w, "shown", "the very version")
		w.ResourceVersion = "x0"
		expect(t, d, w, "unclear", "another")
		w.ResourceVersion = "7"
		expect(t, d, w, "unclear", "a number")
		expect(t, d, goneOf(w), "unclear", "gone")
		w.UID = "3"
		expect(t, d, goneOf(w), "shown", "replaced")
		w.Name, w.UID = "held", "2"
		expect(t, d, markedOf(w), "shown", "marked")
		testkit.Equal(t, d.Relisted(w), true, "not relisted, but who knows")
	})
}

// TestC6_Undecodable: an undecodable object, or its delete, advances the store's version without a
// bookmark.
func TestC6_Undecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		dropBookmarks(api)
		good := writtenOf(widgets, api.Put(widgets, widget("odd", int64(1))))
		c, _ := widgetCache(t, api)
		h := cache.For[*Widget](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		api.Lag(lag)
		d := declared(h)
		expect(t, d, good, "shown", "before")
		bad := writtenOf(widgets, api.Put(widgets, widget("odd", "large")))
		fresh := writtenOf(widgets, api.Put(widgets, widget("fresh", "large")))
		expect(t, d, bad, "behind", "at once")
		expect(t, d, fresh, "behind", "at once")
		time.Sleep(lag)
		synctest.Wait()
		expect(t, d, bad, "shown", "the watch was there")
		expect(t, d, fresh, "shown", "the watch was there")
		if storages.Current() != cache.Packed { // which has the metadata of each object
			expect(t, d, markedOf(bad), "unclear", "whether it is marked")
		}
		for _, w := range []consistency.Write{bad, fresh} {
			api.Remove(widgets, "default", w.Name)
			after := w
			after.Gone, after.ResourceVersion, after.Object = true, api.Version(), nil
			expect(t, d, after, "behind", "deleted "+w.Name)
			time.Sleep(lag)
			synctest.Wait()
			expect(t, d, after, "shown", "deleted "+w.Name)
		}
	})
}

// TestC6_Transformed: a transformed object shows a write.
func TestC6_Transformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		empties := cache.NewTransform("empties", func(m *corev1.ConfigMap) { *m = corev1.ConfigMap{} })
		d := declared(cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: empties}))
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		synctest.Wait()
		expect(t, d, w, "shown", "it came")
		expect(t, d, goneOf(w), "behind", "it has not gone")
	})
}

// TestC6_Relisted: after a list, an event may stand for several changes. In doubt it does.
func TestC6_Relisted(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(a)
				old := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
				c, _ := newCache(t, api)
				h := cache.For[*corev1.ConfigMap](c)
				d := declared(h)
				testkit.Equal(t, d.Relisted(old), true, "no list yet: who knows")
				defer testkit.Start(t, c.Run)()
				synced(t, h)
				w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1")))
				synctest.Wait()
				testkit.Equal(t, d.Relisted(old), true, "listed before")
				testkit.Equal(t, d.Relisted(w), false, "listed before")
				time.Sleep(time.Minute)
				api.CutWatches()
				time.Sleep(time.Minute)
				testkit.Equal(t, d.Relisted(w), false, "a watch that goes on is no list")
				api.Intercept(refuse)
				api.CutWatches()
				synctest.Wait()
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "2"))
				api.Expire()
				api.Intercept(a)
				time.Sleep(time.Minute)
				testkit.Equal(t, d.Relisted(w), true, "listed anew")
				w.ResourceVersion = ""
				elsewhere := w
				elsewhere.Resource.Resource = "secrets"
				if !d.Relisted(w) || d.Relisted(elsewhere) || declared().Relisted(w) {
					t.Error("an unknown version is in doubt, another resource is not")
				}
			})
		})
	}
}
