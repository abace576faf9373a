// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS2_BrokenWatch: a broken watch resumes without a list of all objects.
func TestS2_BrokenWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		for _, name := range []string{"a", "b"} {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(name))
		}
		c, told := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		events := record(t, maps)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		// client-go lists again after a watch of less than a second without events.
		time.Sleep(time.Minute)
		events.take()
		api.Intercept(refuse)
		api.CutWatches()
		time.Sleep(10 * time.Minute)
		testkit.Equal(t, maps.State().Phase, hook.Failing, maps.State())
		api.Remove(sim.ConfigMaps, "default", "a")
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b", "1"))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("c"))
		api.Intercept(nil)
		time.Sleep(3 * time.Second)
		testkit.Equal(t, events.take(), "delete a, update b, add c")
		for _, r := range api.Requests() {
			if r.Verb == "list" && r.Query.Get("limit") != "1" { // a comparison reads one object
				t.Errorf("it lists: %s", r.Query.Encode())
			}
		}
		time.Sleep(2 * time.Second) // until it certainly has what was missed
		testkit.Equal(t, told.take(), "failing, synced", "the hook was told")
	})
}

// TestS2_Expired: after a version expires (410), the new list delivers the missed changes,
// including deletes.
func TestS2_Expired(t *testing.T) {
	inTheAnswer := onWatch(func(r *sim.Request) (*http.Response, error) {
		if r.Query.Get("resourceVersion") == "" {
			return nil, nil
		}
		return r.Fail(http.StatusGone, "too old")
	})
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil), "410 in the answer": inTheAnswer} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(a)
				for _, name := range []string{"a", "b", "c"} {
					api.Put(sim.ConfigMaps, testkit.ConfigMap(name))
				}
				c, told := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](c)
				events := record(t, maps)
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				synctest.Wait()
				events.take()
				api.Intercept(refuse)
				api.CutWatches()
				time.Sleep(time.Minute)
				before := api.Object(sim.ConfigMaps, "default", "b").GetUID()
				api.Remove(sim.ConfigMaps, "default", "a")
				api.Remove(sim.ConfigMaps, "default", "b")
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
				api.Put(sim.ConfigMaps, testkit.ConfigMap("d"))
				api.Expire()
				api.Intercept(a)
				time.Sleep(5 * time.Second)
				// The order differs: lists have none, and missed deletes come last or first.
				got := events.take()
				for _, want := range []string{"missed a", "update b", "add d"} {
					testkit.Contains(t, got, want)
				}
				testkit.NotEqual(t, testkit.Must(maps.Get(t.Context(), testkit.Key("b"))).UID, before)
				testkit.Equal(t, told.take(), "failing, synced", "the hook was told")
			})
		})
	}
}

var tooLarge = metav1.Status{
	Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
	Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}, RetryAfterSeconds: 1},
}

// TestS2_TooLargeVersion: after a restore to an older state, the API server is listed again.
func TestS2_TooLargeVersion(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				newer, older := sim.NewServer(sim.ConfigMaps), sim.NewServer(sim.ConfigMaps)
				for _, name := range []string{"a", "b", "c", "d"} {
					newer.Put(sim.ConfigMaps, testkit.ConfigMap(name))
				}
				older.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
				older.Intercept(a)
				newer.Intercept(a)
				c, _ := newCache(t, newer)
				maps := cache.For[*corev1.ConfigMap](c)
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				synctest.Wait()
				newer.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb == "watch" && r.Query.Get("resourceVersion") != "" {
						return r.FailWith(tooLarge)
					}
					return r.Forward(older)
				})
				newer.CutWatches()
				time.Sleep(10 * time.Second)
				testkit.Len(t, testkit.Must(maps.List(t.Context(), cache.ListOptions{})), 1)
			})
		})
	}
}

// TestS2_AnotherServer: after a time without service, a kind is listed again, even if the API
// server would resume the watch: it may never have had the objects in the store.
func TestS2_AnotherServer(t *testing.T) {
	for n := range 8 { // the pauses between requests are random
		synctest.Test(t, func(t *testing.T) {
			before, after := sim.NewServer(sim.Deployments), sim.NewServer(sim.Deployments)
			before.Put(sim.Deployments, testkit.Deployment("a"))
			for range 10 { // its versions are higher, so no restore is noticed
				for _, name := range []string{"b", "c", "d"} {
					after.Put(sim.Deployments, testkit.Deployment(name))
				}
			}
			c, _ := newCache(t, before)
			deployments := cache.For[*appsv1.Deployment](c)
			events := record(t, deployments)
			defer testkit.Start(t, c.Run)()
			synced(t, deployments)
			time.Sleep(3 * time.Minute)
			events.take()
			before.Withdraw(sim.Deployments)
			time.Sleep(time.Minute + time.Duration(n)*7*time.Second)
			before.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Forward(after) })
			time.Sleep(5 * time.Second)
			testkit.Len(t, testkit.Must(deployments.List(t.Context(), cache.ListOptions{})), 3, n)
			testkit.Contains(t, events.take(), "missed a", n)
		})
	}
}

// TestS5_Removed: a removed CRD parks its informer, and the last known state stays readable. When
// it returns, no delete is lost and nothing is restarted.
func TestS5_Removed(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		for away := 10*time.Minute + 1300*time.Millisecond; away < 10*time.Minute+30*time.Second; away += 7 * time.Second {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Deployments, sim.ConfigMaps)
				api.Intercept(a)
				for _, name := range []string{"a", "b"} {
					api.Put(sim.Deployments, testkit.Deployment(name))
				}
				c, told := newCache(t, api)
				deployments, maps := cache.For[*appsv1.Deployment](c), cache.For[*corev1.ConfigMap](c)
				events := record(t, deployments)
				defer testkit.Start(t, c.Run)()
				synced(t, deployments)
				time.Sleep(3 * time.Minute)
				if got := events.take(); got != "add a, add b" && got != "add b, add a" {
					t.Errorf("got %s", got)
				}
				api.Withdraw(sim.Deployments)
				time.Sleep(away)
				testkit.Equal(t, deployments.State().Phase, hook.Waiting)
				testkit.ErrorSatisfies(t, deployments.State().Err, meta.IsNoMatchError)
				testkit.Equal(t, testkit.Err(deployments.Get(t.Context(), testkit.Key("a"))), nil, "the last known state")
				testkit.Equal(t, maps.State().Phase, hook.Synced, "the other", maps.State())
				api.Serve(sim.Deployments)
				api.Put(sim.Deployments, testkit.Deployment("b"))
				api.Put(sim.Deployments, testkit.Deployment("c"))
				time.Sleep(5 * time.Second)
				got := events.take()
				for _, want := range []string{"missed a", "update b", "add c"} {
					testkit.Contains(t, got, want, fmt.Sprintf("%s, away for %s", name, away))
				}
				testkit.Equal(t, told.take(), "waiting for its API, synced", "the hook was told")
				api.Remove(sim.Deployments, "default", "b")
				synctest.Wait()
				testkit.Equal(t, events.take(), "delete b", "afterwards")
			})
		}
	}
}

// TestS5_ReturnsAsAnotherResource: a kind may return with another plural, even before the first
// list.
func TestS5_ReturnsAsAnotherResource(t *testing.T) {
	for name, known := range map[string]bool{"listed": false, "known but not listed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Deployments)
				b, err := client.New(api.Config(), client.Options{})
				testkit.NoError(t, err)
				c := cache.New(b, cache.Options{})
				deployments := cache.For[*appsv1.Deployment](c)
				if known {
					testkit.NoError(t, testkit.Err(b.Mapping(t.Context(), deployments.GroupVersionKind())))
				} else {
					defer testkit.Start(t, c.Run)()
					synced(t, deployments)
				}
				time.Sleep(3 * time.Minute)
				api.Withdraw(sim.Deployments)
				renamed := sim.Deployments
				renamed.Name = "rollouts"
				api.Serve(renamed)
				api.Put(renamed, testkit.Deployment("a"))
				if known {
					defer testkit.Start(t, c.Run)()
				}
				time.Sleep(5 * time.Second)
				testkit.Equal(t, testkit.Err(deployments.Get(t.Context(), testkit.Key("a"))), nil)
			})
		})
	}
}

// TestS5_ReturnsInAnotherScope: a kind may return cluster-scoped, even if the watch goes on.
func TestS5_ReturnsInAnotherScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Deployments)
		c, _ := newCache(t, api)
		deployments := cache.For[*appsv1.Deployment](c)
		defer testkit.Start(t, c.Run)()
		synced(t, deployments)
		time.Sleep(3*time.Minute + time.Second)
		api.Withdraw(sim.Deployments)
		everywhere := sim.Deployments
		everywhere.Namespaced = false
		api.Serve(everywhere)
		d := testkit.Deployment("a")
		d.Namespace = ""
		api.Put(everywhere, d)
		time.Sleep(5 * time.Second)
		testkit.Equal(t, testkit.Err(deployments.Get(t.Context(), types.NamespacedName{Name: "a"})), nil)
		testkit.Equal(t, testkit.Must(deployments.Namespaced()), false, "namespaced")
	})
}
