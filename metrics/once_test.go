// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"fmt"
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
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestGivenTwice_CountsOnce gives the same Hook to a manager and to all that it runs. It also adds
// each controller again before Run. Each event still counts once, and a controller's series end
// with it.
func TestGivenTwice_CountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(t, r)
		api := sim.NewServer(sim.ConfigMaps, sim.Leases)
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		silent := slog.New(slog.DiscardHandler)
		mgr := manager.New(&rest.Config{Host: sim.Host, Transport: api, QPS: -1}, manager.Options{
			Name: "test", Logger: silent, Hook: m,
			LeaderElection: &leaderelection.Options{Lease: "operator", Namespace: "default", Hook: m},
		})
		reconcile := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			time.Sleep(time.Second)
			return controller.Result{}, nil
		})
		own := hook.On(func(*hook.Slow) {})
		controllers := []*controller.Controller[types.NamespacedName]{
			controller.New("website", reconcile, controller.Options{Logger: silent, Hook: m}),
			controller.NewWithQueue("with", reconcile, controller.Options{Logger: silent, Hook: m}, workqueue.Options[types.NamespacedName]{Hook: m}),
			controller.New("again", reconcile, controller.Options{Logger: silent, Hook: own}),
		}
		for _, c := range controllers {
			c.Watch(source.Kind(cache.For[*corev1.ConfigMap](mgr.Cache()), handler.Self()))
			for range 2 {
				mgr.Add(c)
				testkit.NoError(t, mgr.Remove(t.Context(), c))
			}
			mgr.Add(c)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mgr.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, name := range []string{"website", "with", "again"} {
			for metric, labels := range map[string][]string{
				"controller_runtime_reconcile_total": {name, "success"}, "controller_runtime_reconcile_time_seconds": {name},
				"workqueue_adds_total": {name, name}, "workqueue_work_duration_seconds": {name, name}, "controller_runtime_max_concurrent_reconciles": {name},
			} {
				testkit.Equal(t, value(t, r, metric, labels...), 1, fmt.Sprintf("%s%v", metric, labels))
			}
		}
		testkit.Equal(t, value(t, r, "setpoint_leader_election_terms_total", "acquired", "operator"), 1, "terms are counted")
		for _, c := range controllers {
			testkit.Equal(t, mgr.Remove(t.Context(), c), nil)
			testkit.Len(t, having(t, r, c.Name()), 0, "the removed controller has left")
		}
		cancel()
		testkit.Equal(t, <-done, nil)
	})
}
