// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Operator runs the Website operator until SIGTERM. It uses -kubeconfig, KUBECONFIG, the pod's
// service account or ~/.kube/config. It expects the CRD to be installed (kubectl apply -k
// config/crd).
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file` (default: KUBECONFIG, the pod's service account, or ~/.kube/config)")
	elect := flag.Bool("leader-elect", false, "act only while holding the Lease "+operator.Name)
	namespace := flag.String("lease-namespace", "", "`namespace` of the Lease (default: the pod's)")
	health := flag.String("http", "", "`address` such as :8081 for /livez and /readyz (default: none)")
	scrape := flag.String("metrics", "", "`address` such as :8443 for /metrics over TLS (default: none)")
	hooks := flag.String("webhooks", "", "`address` such as :9443 for the webhooks over TLS (default: none)")
	debugging := flag.String("debug", "", "loopback `address` such as localhost:6060 for /debug/why, /debug/failing and profiles (default: none)")
	flag.Parse()

	var o operator.Options
	if *elect {
		o.LeaderElection = &leaderelection.Options{Lease: operator.Name, Namespace: *namespace}
	}
	o.Logger = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetSlogLogger(o.Logger) // logs of client-go

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	if err := run(ctx, *kubeconfig, *health, *scrape, *hooks, *debugging, o); err != nil {
		fmt.Fprintf(os.Stderr, "operator: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, health, scrape, hooks, debugging string, o operator.Options) error {
	cfg, err := client.LoadConfig(kubeconfig)
	if err != nil {
		return err
	}
	var probes net.Listener
	if health != "" { // fail for a taken port before a request
		if probes, err = server.Listen(health); err != nil {
			return fmt.Errorf("-http: %w", err)
		}
		defer probes.Close()
	}
	if hooks != "" {
		if o.Webhooks, err = operator.Webhooks(webhook.Options{Server: server.Options{Address: hooks}}); err != nil {
			return err
		}
	}
	if o.Metrics, err = metrics.New(prometheus.NewRegistry()); err != nil {
		return err
	}
	mgr, err := operator.New(cfg, o)
	if err != nil {
		return err
	}
	if probes != nil {
		server.AddHealth(mgr, server.Options{Listener: probes})
	}
	if scrape != "" { // with a self-signed certificate; see CertDir
		server.AddMetrics(mgr, server.Options{Address: scrape})
	}
	debug.Add(mgr, debug.Options{Address: debugging})
	if err := operator.Installed(ctx, mgr.Client()); err != nil {
		return err
	}
	return mgr.Run(ctx)
}
