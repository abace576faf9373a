// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestHooksReachEverything: the manager's Hook observe controllers, queues, sources and Leases
// that are added before and during Run. Hook of a Lease are called, too.
func TestHooksReachEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		var mu sync.Mutex
		told := map[string]int{}
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			told[what]++
		}
		hooks := hook.Join(
			hook.On(func(e *hook.QueueOpened) { note("queue " + e.Queue) }),
			hook.On(func(e *hook.QueueAdded) { note("key of " + e.Queue) }), hook.On(func(r *hook.Reconciled) { note("reconcile of " + r.Controller) }), hook.On(func(r *hook.SourceStarted) { note("source of " + r.Controller) }), hook.On(func(e *hook.LeaseAcquired) { note("term of " + e.Lease) }))
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.Hook = hooks
			leaseIn(o).Hook = hook.On(func(*hook.LeaseAcquired) { note("its own term") })
		})
		nothing := func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}
		configMaps(m, "early", nothing)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		configMaps(m, "late", nothing)
		m.AddLease(leaderelection.Options{Lease: "second", Namespace: "default"}).AddLeaderOnly("f", func(ctx context.Context) error { <-ctx.Done(); return nil })
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		want := map[string]int{"its own term": 1, "term of second": 1, "term of operator": 1}
		for _, c := range []string{"early", "late"} {
			for _, what := range []string{"queue ", "key of ", "reconcile of ", "source of "} {
				want[what+c] = 1
			}
		}
		testkit.DeepEqual(t, told, want)
	})
}

// TestHooksAndTheLog: hooks do not replace the log, and see the elector's requests, too.
func TestHooksAndTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		var out testkit.Buffer
		var acquired, unfenced, caches, leases, watches atomic.Int64
		m := newManager(api, func(o *manager.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&out, nil))
			elected(o)
			leaseIn(o).Hook = hook.On(func(*hook.LeaseAcquired) { acquired.Add(1) })
			o.Hook = hook.Join(
				hook.On(func(c *hook.CacheStarted) { caches.Add(int64(1 + len(c.Informers()))) }),
				hook.On(func(*hook.CacheStopped) { caches.Add(-2) }),
				hook.On(func(*hook.Unfenced) { unfenced.Add(1) }),
				hook.On(func(a *hook.APIAnswer) {
					if a.Method == http.MethodPut && a.Status == http.StatusOK {
						leases.Add(1) // nothing else is updated
					}
					if a.Watch {
						watches.Add(1)
					}
				}),
			)
		})
		configMaps(m, "website", func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			key.Name = "missing"
			testkit.NotEqual(t, client.For[*corev1.ConfigMap](m.Client()).Delete(t.Context(), key), nil)
			return controller.Result{}, nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		for _, line := range []string{"msg=leading", `msg="a write without a term of leadership`, `msg="the lease is released"`} {
			testkit.Count(t, out.String(), line, 1)
		}
		if acquired.Load() != 1 || unfenced.Load() != 1 || caches.Load() != 0 || leases.Load() < 20 || watches.Load() == 0 {
			t.Errorf("told of %d terms, %d writes without one, %d too many caches, %d renewals, %d watches",
				acquired.Load(), unfenced.Load(), caches.Load(), leases.Load(), watches.Load())
		}
	})
}
