// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestM3_AServerThatHangsWhileEventsWait: shortly before the stop, the API server ceases to answer,
// also for the Lease. The stop keeps the grace time, and each event is sent or reported as dropped.
func TestM3_AServerThatHangsWhileEventsWait(t *testing.T) {
	for name, option := range map[string]func(*manager.Options){"elected": elected, "alone": func(*manager.Options) {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, sim.Leases, eventsResource)
				put(api, "a")
				var sent, dropped atomic.Int64
				m := newManager(api, func(o *manager.Options) {
					option(o)
					o.Hook = hook.Join(
						hook.On(func(e *hook.EventSent) { sent.Add(int64(e.Events)) }),
						hook.On(func(e *hook.EventDropped) { dropped.Add(int64(e.Events)) }),
					)
				})
				rec := events.For(m, events.Options{})
				const calls = 100
				recorded := make(chan struct{})
				configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
					for i := range calls {
						rec.Eventf(ctx, obj, events.Warning, "Failed", "Apply", "note %d", i)
						if i == calls/2 {
							time.Sleep(time.Minute) // some are sent
							api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Hang() })
						}
					}
					close(recorded)
					<-ctx.Done()
					return controller.Result{}, ctx.Err()
				})
				stop, result := start(t, m)
				<-recorded
				began := time.Now()
				stop()
				ok(t, result())
				testkit.AtMost(t, time.Since(began), 28*time.Second)
				testkit.NotEqual(t, sent.Load(), 0)
				testkit.NotEqual(t, dropped.Load(), 0)
				testkit.Equal(t, sent.Load()+dropped.Load(), calls)
			})
		})
	}
}
