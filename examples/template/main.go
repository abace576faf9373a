// Command sample-operator is a Kubernetes operator. It runs until SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file` (default: KUBECONFIG, the Pod's ServiceAccount, or ~/.kube/config)")
	health := flag.String("health", "", "`address` such as :8081 for /livez and /readyz (default: none)")
	scrape := flag.String("metrics", "", "`address` such as :8443 for /metrics over TLS (default: none)")
	debugging := flag.String("debug", "localhost:6060", "loopback `address` for /debug/why, /debug/failing and profiles; empty for none")
	elect := flag.Bool("leader-elect", false, "act only while holding the Lease "+name)
	flag.Parse()

	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	klog.SetSlogLogger(slog.Default()) // logs of client-go

	var o manager.Options
	if *elect {
		o.LeaderElection = &leaderelection.Options{Lease: name} // in the Pod's namespace
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *kubeconfig, *health, *scrape, *debugging, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, health, scrape, debugging string, o manager.Options) error {
	cfg, err := client.LoadConfig(kubeconfig)
	if err != nil {
		return err
	}
	if o.Metrics, err = metrics.New(prometheus.NewRegistry()); err != nil {
		return err
	}
	mgr, err := newOperator(cfg, o)
	if err != nil {
		return err
	}
	if health != "" {
		server.AddHealth(mgr, server.Options{Address: health})
	}
	if scrape != "" { // with a self-signed certificate; see CertDir
		server.AddMetrics(mgr, server.Options{Address: scrape})
	}
	debug.Add(mgr, debug.Options{Address: debugging})
	return mgr.Run(ctx)
}
