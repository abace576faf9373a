// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command cmd is the operator of the kind Guestbook.
package main

import (
	"context"
	"flag"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	webappv1 "my.domain/guestbook/api/v1"
	"my.domain/guestbook/internal/controller"
)

type options struct {
	metricsAddr, probeAddr string
	leaderElect            bool
	namespace              string
}

func main() {
	var o options
	flag.StringVar(&o.metricsAddr, "metrics-bind-address", "0", "The address of the metrics endpoint, or 0 to disable it.")
	flag.StringVar(&o.probeAddr, "health-probe-bind-address", ":8081", "The address of the probe endpoint.")
	flag.BoolVar(&o.leaderElect, "leader-elect", false, "Enable leader election.")
	flag.StringVar(&o.namespace, "leader-election-namespace", "", "The namespace of the Lease. Default: the Pod's.")
	flag.Parse()

	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), o); err != nil {
		ctrl.Log.Error(err, "problem running manager")
		os.Exit(1)
	}
}

// run runs the operator until ctx ends.
func run(ctx context.Context, cfg *rest.Config, o options) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(webappv1.AddToScheme(scheme))

	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: o.metricsAddr},
		HealthProbeBindAddress:  o.probeAddr,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        "2e94e2e7.my.domain",
		LeaderElectionNamespace: o.namespace,
		Controller:              config.Controller{SkipNameValidation: new(true)}, // a test runs two managers
	})
	if err != nil {
		return err
	}
	if err := (&controller.GuestbookReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).SetupWithManager(mgr); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
