// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command cronjob is the CronJob controller of the Kubebuilder book on Setpoint. A CronJob of the
// group batch.tutorial.kubebuilder.io starts Jobs at the times of its schedule:
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
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
)

const name = "cronjob-controller"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file` (default: KUBECONFIG, the pod's service account, or ~/.kube/config)")
	var at addresses
	flag.StringVar(&at.health, "health", ":8081", "`address` of /livez and /readyz; empty for none")
	flag.StringVar(&at.metrics, "metrics", "", "`address` of /metrics with TLS, such as :8443 (default: none)")
	flag.StringVar(&at.certs, "metrics-certs", "", "`directory` with tls.crt and tls.key (default: a self-signed certificate)")
	elect := flag.Bool("leader-elect", false, "act only while holding the Lease "+name)
	namespace := flag.String("lease-namespace", "", "`namespace` of the Lease (default: the pod's)")
	flag.Parse()

	o := manager.Options{Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	klog.SetSlogLogger(o.Logger) // logs of client-go
	if *elect {
		o.LeaderElection = &leaderelection.Options{Lease: name, Namespace: *namespace}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *kubeconfig, at, o)
	stop()
	if err != nil {
		o.Logger.Error("the controller ended", "err", err)
		os.Exit(1)
	}
}

// addresses has the addresses of the servers, and the directory with the certificate for metrics.
type addresses struct{ health, metrics, certs string }

func run(ctx context.Context, kubeconfig string, at addresses, o manager.Options) error {
	cfg, err := client.LoadConfig(kubeconfig)
	if err != nil {
		return err
	}
	if o.Metrics, err = metrics.New(prometheus.NewRegistry()); err != nil {
		return err
	}
	mgr, _, err := operator(cfg, o, time.Now)
	if err != nil {
		return err
	}
	if at.health != "" {
		server.AddHealth(mgr, server.Options{Address: at.health})
	}
	if at.metrics != "" {
		server.AddMetrics(mgr, server.Options{Address: at.metrics, CertDir: at.certs})
	}
	return mgr.Run(ctx)
}

func operator(cfg *rest.Config, o manager.Options, now func() time.Time) (*manager.Manager, *controller.Controller[types.NamespacedName], error) {
	o.Name, o.Scheme = name, runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(scheme.AddToScheme, v1.AddToScheme)
	if err := builder.AddToScheme(o.Scheme); err != nil {
		return nil, nil, err
	}
	mgr := manager.New(cfg, o)
	r := &reconciler{
		cronJobs: cache.For[*v1.CronJob](mgr.Cache()),
		jobs:     cache.For[*batchv1.Job](mgr.Cache()),
		client:   mgr.Client(),
		now:      now,
	}
	c := controller.New("cronjob", r, controller.Options{})
	c.Watch(source.Kind(r.cronJobs, handler.Self(), handler.GenerationChanged))
	c.Watch(source.Kind(r.jobs, handler.Owner(r.cronJobs)))
	mgr.Add(c)
	return mgr, c, nil
}
