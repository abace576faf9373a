// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
)

// One registry has the metrics of the operator and of Go. Users with the permission to get /metrics
// can read it, on port 8443.
func Example() {
	run := func(ctx context.Context, cfg *rest.Config, r controller.Reconciler[types.NamespacedName]) error {
		m, err := metrics.New(prometheus.NewRegistry())
		if err != nil {
			return err
		}
		mgr := manager.New(cfg, manager.Options{
			Name: "website-operator", Metrics: m,
			LeaderElection: &leaderelection.Options{Lease: "website-operator"},
		})
		server.AddMetrics(mgr, server.Options{})
		mgr.Add(controller.New("website", r, controller.Options{}))
		return mgr.Run(ctx)
	}
	_ = run // with signal.NotifyContext and client.LoadConfig
}
