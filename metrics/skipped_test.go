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
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestSkippedApply_NamesTheController: a Reconcile applies the same twice. The second apply is not
// sent; the hook and the series have the name of the controller.
func TestSkippedApply_NamesTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(t, r)
		var skipped []hook.SkippedApply
		both := hook.Join(m, hook.On(func(s *hook.SkippedApply) { skipped = append(skipped, *s) }))
		mgr := manager.New(&rest.Config{Host: sim.Host, Transport: sim.NewServer(sim.ConfigMaps), QPS: -1}, manager.Options{
			Name: "test", Logger: slog.New(slog.DiscardHandler), Hook: both,
		})
		desired := corev1ac.ConfigMap("a", "x").WithData(map[string]string{"k": "v"})
		c := controller.New("website", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			maps := client.For[*corev1.ConfigMap](mgr.Client())
			live, err := maps.Apply(ctx, desired, client.UnlessAlready(nil))
			if err == nil {
				_, err = maps.Apply(ctx, desired, client.UnlessAlready(live))
			}
			return controller.Result{}, err
		}), controller.Options{})
		mgr.Add(c)
		c.Queue().Add(types.NamespacedName{Namespace: "x", Name: "a"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mgr.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := (hook.SkippedApply{Controller: "website", Version: "v1", Resource: "configmaps"}); len(skipped) != 1 || skipped[0] != want {
			t.Errorf("the hook was given %+v, want %+v", skipped, want)
		}
		testkit.Equal(t, value(t, r, "setpoint_skipped_applies_total", "website", "configmaps"), 1, "the series")
		cancel()
		testkit.Equal(t, <-done, nil)
	})
}
