// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"errors"
	"net/http"

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
		Name: "website-operator",

		Health: &manager.HealthOptions{Address: ":8081"},
		Server: &server.Options{Address: ":9443", CertDir: "/etc/website-operator/tls"},

		Metrics:       m,                 // observes the manager and all that it runs
		MetricsServer: &server.Options{}, // TLS on :8443, for users who may get /metrics

		PprofAddress: "localhost:6060",
	})
	c := controller.New("website", r, controller.Options{})
	mgr.Add(c)

	mgr.Handle("/debug/controllers/", mgr.Authorize(http.StripPrefix("/debug/controllers", debug.Controllers(c))))
	mgr.Handle("/debug/informers/", mgr.Authorize(http.StripPrefix("/debug/informers", debug.Informers(mgr.Cache()))))
	mgr.Handle("/debug/shards/", mgr.Authorize(http.StripPrefix("/debug/shards", debug.Shards(mgr.Group()))))
	mgr.AddReadyzCheck("license", func(context.Context) error {
		if !license() {
			return errors.New("the license has expired")
		}
		return nil
	})
	return mgr, nil
}
