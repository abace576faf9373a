// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/source"
)

// TestTwoManagers_ShareMetrics: two managers of one process have one Metrics, so one registry.
// Controllers of the same name are summed. When one manager ends, the other one's series stay.
func TestTwoManagers_ShareMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		m, err := metrics.New(r)
		testkit.NoError(t, err)
		run := func(controllers ...string) (stop func()) {
			api := sim.NewServer(sim.ConfigMaps)
			api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
			mgr := manager.New(&rest.Config{Host: sim.Host, Transport: api, QPS: -1}, manager.Options{
				Name: "test", Logger: slog.New(slog.DiscardHandler), Metrics: m,
			})
			for _, name := range controllers {
				c := controller.New(name, controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
					return controller.Result{RequeueAfter: time.Hour}, nil
				}), controller.Options{})
				c.Watch(source.Kind(cache.For[*corev1.ConfigMap](mgr.Cache()), handler.Self()))
				mgr.Add(c)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- mgr.Run(ctx) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			return func() {
				cancel()
				testkit.Equal(t, <-done, nil)
			}
		}
		total := func(name string) float64 {
			return value(t, r, "controller_runtime_reconcile_total", name, "requeue_after")
		}
		first, second := run("website", "first"), run("website", "second")
		testkit.Equal(t, total("website"), 2)
		testkit.Equal(t, total("second"), 1)
		first()
		testkit.Len(t, having(t, r, "first"), 0, "the manager that has ended left")
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, total("website"), 3, "after the end of one")
		testkit.Equal(t, total("second"), 2, "after the end of one")
		second()
		testkit.Len(t, append(having(t, r, "website"), having(t, r, "second")...), 0, "both managers have ended and left")
	})
}
