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
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
)

const operatorName = "memcached-operator"

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

// operator returns the manager. lookAgain is how often it looks for the kind ServiceMonitor.
func operator(cfg *rest.Config, o manager.Options, lookAgain time.Duration) (*manager.Manager, error) {
	o.Name, o.Scheme = operatorName, runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(scheme.AddToScheme, v1beta1.AddToScheme)
	if err := builder.AddToScheme(o.Scheme); err != nil {
		return nil, err
	}
	mgr := manager.New(cfg, o)
	in := mgr.Cache()
	r := &reconciler{
		memcacheds: cache.For[*v1beta1.Memcached](in), secrets: cache.For[*corev1.Secret](in),
		client: mgr.Client(), events: events.For(mgr, events.Options{}), lookAgain: lookAgain,
	}
	c := controller.New("memcached", r, controller.Options{})
	var err error
	r.children, err = children.New(r.memcacheds, r.client,
		child(c, r, cache.For[*appsv1.Deployment](in)), child(c, r, cache.For[*corev1.Service](in)),
		child(c, r, cache.For[*policyv1.PodDisruptionBudget](in)), child(c, r, cache.For[*networkingv1.NetworkPolicy](in)),
		child(c, r, cache.For[*autoscalingv2.HorizontalPodAutoscaler](in)),
		child(c, r, cache.ForScope[*unstructured.Unstructured](in, cache.Scope{Kind: serviceMonitorKind})))
	if err != nil {
		return nil, err
	}
	c.Watch(source.Kind(r.memcacheds, handler.Self(), handler.Or(handler.GenerationChanged, handler.AnnotationsChanged)))
	c.Watch(source.Kind(r.secrets, r.secretUsers(cache.NewIndex(r.memcacheds, "secret", secretNames, "spec"))))
	mgr.Add(c)
	return mgr, nil
}

// child makes the owner due when one of its children changes.
func child[T client.Object](c *controller.Controller[types.NamespacedName], r *reconciler, of *cache.Handle[T]) children.Kind {
	c.Watch(source.Kind(of, handler.Owner(r.memcacheds)))
	return children.Of(of)
}
