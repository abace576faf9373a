// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
)

// The kubelet probes :8081. Port 8443 serves metrics to the users that the API server allows.
func Example_servers() {
	serve := func(ctx context.Context, cfg *rest.Config, metrics http.Handler, license func() bool) error {
		mgr := manager.New(cfg, manager.Options{Name: "website-operator"})
		server.AddHealth(mgr, server.Options{Address: ":8081"})
		s := server.Add(mgr, server.Options{Address: ":8443", CertDir: "/etc/website-operator/tls"})
		s.Handle("/metrics", s.Authorize(metrics))
		mgr.AddReadyzCheck("license", func(context.Context) error {
			if !license() {
				return errors.New("the license has expired")
			}
			return nil
		})
		return mgr.Run(ctx)
	}
	_ = serve
}

// The controllers of one program lead under two Leases, possibly on two replicas.
func Example_leaderElection() {
	serve := func(ctx context.Context, cfg *rest.Config, sites, billing manager.Controller, announce func(context.Context) error) error {
		mgr := manager.New(cfg, manager.Options{
			Name:           "website-operator",
			LeaderElection: &leaderelection.Options{Lease: "website-operator"},
		})
		mgr.Add(sites)
		mgr.AddLeaderOnly("announce", announce) // in each term; for every replica: AddEverywhere

		second := mgr.AddLease(leaderelection.Options{Lease: "website-operator-billing"})
		second.Add(billing)
		return mgr.Run(ctx)
	}
	_ = serve
}
