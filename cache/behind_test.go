// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS2_DeletedRightAfter: the delete of an undecodable object is not lost if its last known state
// has not reached the store.
func TestS2_DeletedRightAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		c, _ := widgetCache(t, api)
		h := cache.For[*Widget](c)
		seen, e := subscribe(t, h)
		defer seen.Close()
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) {
			api.Intercept(nil)
			event := func(kind string, version int, size string) string {
				return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"namespace":"default","name":"odd","uid":"1","labels":{"a":"b"},"resourceVersion":"%d"},"size":%s}}`, kind, version, size)
			}
			return r.SendAndHang(event("ADDED", 5, "1") + event("MODIFIED", 6, `"large"`) + event("DELETED", 7, `"large"`))
		}))
		api.CutWatches()
		time.Sleep(time.Minute)
		testkit.ErrorSatisfies(t, testkit.Err(h.Get(t.Context(), testkit.Key("odd"))), apierrors.IsNotFound)
		testkit.Equal(t, e.take(), "add odd, delete odd")
	})
}

// TestS9_UndecodableWhileListing: during a list, an undecodable object does not become NotFound.
func TestS9_UndecodableWhileListing(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(widgets)
				api.Intercept(a)
				api.Put(widgets, widget("odd", "large"))
				api.Put(widgets, widget("gone", "large"))
				c, _ := widgetCache(t, api)
				h := cache.For[*Widget](c)
				defer testkit.Start(t, c.Run)()
				synced(t, h)
				relist := func() {
					api.Put(widgets, widget("other", int64(1)))
					api.Expire()
					api.CutWatches()
					time.Sleep(time.Minute)
				}
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb == "list" || r.Streaming() {
						return r.Refuse()
					}
					return onWatch(func(r *sim.Request) (*http.Response, error) {
						return r.Send(`{"type":"ERROR","object":{"code":410,"reason":"Expired","status":"Failure"}}`)
					})(r)
				})
				relist()
				if _, err := h.Get(t.Context(), testkit.Key("odd")); err == nil || apierrors.IsNotFound(err) {
					t.Errorf("got %v; %s", err, h.State())
				}
				api.Remove(widgets, "default", "gone")
				api.Intercept(a)
				relist()
				if _, err := h.Get(t.Context(), testkit.Key("odd")); err == nil || apierrors.IsNotFound(err) || h.State().BrokenCount != 1 {
					t.Errorf("got %v; %s", err, h.State())
				}
			})
		})
	}
}

// TestS2_NoVersion: after an object without a version, the watch resumes at the last known version
// and misses no delete.
func TestS2_NoVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Put(widgets, widget("a", int64(1)))
		c, _ := widgetCache(t, api)
		h := cache.For[*Widget](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) {
			api.Intercept(nil)
			api.Remove(widgets, "default", "a")
			return r.Send(`{"type":"ADDED","object":{"metadata":{"namespace":"default","name":"b"}}}`)
		}))
		api.CutWatches()
		time.Sleep(time.Minute)
		testkit.ErrorSatisfies(t, testkit.Err(h.Get(t.Context(), testkit.Key("a"))), apierrors.IsNotFound)
	})
}

// TestS6_Churn: deleted objects leave nothing behind, even without a relist.
func TestS6_Churn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: cache.NewTransform("fails", func(*corev1.ConfigMap) { panic("it fails") })})
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		for n := range 100 {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("m", n)))
			api.Remove(sim.ConfigMaps, "default", fmt.Sprint("m", n))
		}
		synctest.Wait()
		testkit.NotEqual(t, h.State().BrokenCount, 0, "no object failed")
		time.Sleep(time.Hour)
		testkit.Equal(t, h.State().BrokenCount, 0, h.State())
		testkit.Equal(t, h.State().Lists, 1, h.State())
	})
}
