// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
)

// operations makes a program with probes, metrics and its state over HTTP.
func operations(cfg *rest.Config, r controller.Reconciler[types.NamespacedName], license func() bool) (*manager.Manager, error) {
	m, err := metrics.New(prometheus.NewRegistry()) // with the Go and process metrics
	if err != nil {
		return nil, err
	}
	mgr := manager.New(cfg, manager.Options{
		Name:    "website-operator",
		Metrics: m, // observes the manager and all that it runs
	})
	c := controller.New("website", r, controller.Options{})
	mgr.Add(c)

	server.AddHealth(mgr, server.Options{Address: ":8081"})
	server.AddMetrics(mgr, server.Options{}) // TLS on :8443, for users who may get /metrics
	debug.Add(mgr, debug.Options{Address: "localhost:6060"})
	s := server.Add(mgr, server.Options{Address: ":9443", CertDir: "/etc/website-operator/tls"})
	s.Handle("/debug/", s.Authorize(debug.Handler(mgr, debug.Options{})))
	mgr.AddReadyzCheck("license", func(context.Context) error {
		if !license() {
			return errors.New("the license has expired")
		}
		return nil
	})
	return mgr, nil
}
