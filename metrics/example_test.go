// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
)

// One registry has the metrics of the operator and of Go. Users with the permission to get /metrics
// can read it.
func Example() {
	run := func(ctx context.Context, cfg *rest.Config, r controller.Reconciler[types.NamespacedName]) error {
		registry := prometheus.NewRegistry()
		registry.MustRegister(collectors.NewGoCollector())
		hooks, err := metrics.New(registry, metrics.Options{})
		if err != nil {
			return err
		}
		mgr := manager.New(cfg, manager.Options{
			Name: "website-operator", Hooks: hooks,
			LeaderElection: &leaderelection.Options{Lease: "website-operator"},
			Server:         &server.Options{CertDir: "/etc/website/tls"},
		})
		mgr.Handle("/metrics", mgr.Authorize(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
		mgr.Add(controller.New("website", r, controller.Options{}))
		return mgr.Run(ctx)
	}
	_ = run // with signal.NotifyContext and client.LoadConfig
}
