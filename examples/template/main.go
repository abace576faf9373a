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

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
)

// settings are the values of the flags.
type settings struct {
	kubeconfig, namespaces string
	health, metrics, debug string
	elect                  bool
	leaseNamespace         string
	logLevel               slog.Level
	logFormat              string
}

func main() {
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: KUBECONFIG, the Pod's ServiceAccount, or ~/.kube/config)")
	flag.StringVar(&s.namespaces, "namespaces", "", "comma-separated `list` of the namespaces to watch (default: all)")
	flag.StringVar(&s.health, "health", "", "`address` such as :8081 for /livez and /readyz (default: none)")
	flag.StringVar(&s.metrics, "metrics", "", "`address` such as :8443 for /metrics over TLS (default: none)")
	flag.StringVar(&s.debug, "debug", "localhost:6060", "loopback `address` for /debug/why, /debug/failing and profiles; empty for none")
	flag.BoolVar(&s.elect, "leader-elect", false, "act only while holding the Lease "+name)
	flag.StringVar(&s.leaseNamespace, "leader-elect-namespace", "", "`namespace` of the Lease (default: the Pod's)")
	flag.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "`level`: DEBUG, INFO, WARN or ERROR")
	flag.StringVar(&s.logFormat, "log-format", "json", "`format`: json or text")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := s.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func (s *settings) run(ctx context.Context) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)                   // logs of client-go
	if _, err := memlimit.Set(); err != nil { // GOMEMLIMIT is 90 % of the container's limit
		log.Warn("the memory limit is unknown", "err", err)
	}
	cfg, err := client.LoadConfig(s.kubeconfig)
	if err != nil {
		return err
	}
	o := manager.Options{Logger: log}
	if o.Metrics, err = metrics.New(prometheus.NewRegistry()); err != nil {
		return err
	}
	if s.namespaces != "" {
		o.Cache.Namespaces = cache.ParseNamespaces(s.namespaces)
	}
	if s.elect {
		o.LeaderElection = &leaderelection.Options{Lease: name, Namespace: s.leaseNamespace}
	}
	mgr, err := newOperator(cfg, o)
	if err != nil {
		return err
	}
	if s.health != "" {
		server.AddHealth(mgr, server.Options{Address: s.health})
	}
	if s.metrics != "" { // with a self-signed certificate; see CertDir
		server.AddMetrics(mgr, server.Options{Address: s.metrics})
	}
	debug.Add(mgr, debug.Options{Address: s.debug})
	return mgr.Run(ctx)
}

func (s *settings) logger() (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: s.logLevel}
	switch s.logFormat {
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, o)), nil
	default:
		return nil, fmt.Errorf("-log-format is %q; want json or text", s.logFormat)
	}
}
