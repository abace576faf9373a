// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command memcached is c5c3/memcached-operator on Setpoint. For a Memcached of the group
// memcached.c5c3.io it keeps up to six objects, with package children:
//
//	kubectl apply --server-side -f config/crd
//	go run . -health ""
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
)

func main() {
	health := flag.String("health", ":8081", "`address` of /livez and /readyz; empty for none")
	metricsAt := flag.String("metrics", "", "`address` of /metrics with TLS, such as :8443 (default: none)")
	elect := flag.Bool("leader-elect", false, "act only while holding the Lease "+operatorName)
	flag.Parse()

	o := manager.Options{Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	klog.SetSlogLogger(o.Logger) // logs of client-go
	if *elect {
		o.LeaderElection = &leaderelection.Options{Lease: operatorName}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *health, *metricsAt, o)
	stop()
	if err != nil {
		o.Logger.Error("the operator ended", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, health, metricsAt string, o manager.Options) error {
	cfg, err := client.LoadConfig("")
	if err != nil {
		return err
	}
	if o.Metrics, err = metrics.New(prometheus.NewRegistry()); err != nil {
		return err
	}
	mgr, err := operator(cfg, o, time.Minute)
	if err != nil {
		return err
	}
	if health != "" {
		server.AddHealth(mgr, server.Options{Address: health})
	}
	if metricsAt != "" {
		server.AddMetrics(mgr, server.Options{Address: metricsAt})
	}
	return mgr.Run(ctx)
}
