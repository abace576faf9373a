// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// fairContestant reconciles a crowd until ctx is done. It uses defaults, except for the number of
// workers.
type fairContestant struct {
	name string
	run  func(ctx context.Context, cfg *rest.Config, c *crowd) error
}

var fairContestants = []fairContestant{{"setpoint", crowdSetpoint}, {"controller-runtime", crowdControllerRuntime}}

// quietLog discards everything without formatting.
var quietLog = logr.FromSlogHandler(slog.DiscardHandler)

// noticing is a predicate that keeps every event and reports it to the crowd.
type noticing struct{ *crowd }

func (n noticing) String() string { return "noticing" }

func (n noticing) Keep(e handler.Event) bool {
	if o, ok := e.New.(*corev1.ConfigMap); ok {
		n.event(o)
	}
	return true
}

func crowdSetpoint(ctx context.Context, cfg *rest.Config, c *crowd) error {
	cl, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	informers := cache.New(cl, cache.Options{})
	objects := cache.For[*corev1.ConfigMap](informers)
	reconciler := controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
		o, err := objects.Get(ctx, k)
		if err != nil || !loaded(k.Namespace) {
			return controller.Result{}, err
		}
		return controller.Result{}, c.reconcile(o)
	})
	ctrl := controller.New("crowd", reconciler, controller.Options{Workers: fairWorkers, Logger: slog.New(slog.DiscardHandler)})
	ctrl.Watch(source.Kind(objects, handler.Self(), noticing{c}))
	if c.changed {
		ctrl.Queue().AddAll(c.keys, workqueue.AddOptions{})
	}
	return runWithCache(ctx, informers, ctrl.Run)
}

func crowdControllerRuntime(ctx context.Context, cfg *rest.Config, c *crowd) error {
	o := crmanager.Options{Metrics: server.Options{BindAddress: "0"}, Logger: quietLog}
	o.Controller.SkipNameValidation = new(true) // the name repeats in each situation
	mgr, err := crmanager.New(cfg, o)
	if err != nil {
		return err
	}
	adds := crsource.Func(func(_ context.Context, q clientgo.TypedRateLimitingInterface[reconcile.Request]) error {
		if c.changed {
			for _, k := range c.keys {
				q.Add(reconcile.Request{NamespacedName: k})
			}
		}
		return nil
	})
	notice := predicate.NewPredicateFuncs(func(crclient.Object) bool { return true })
	notice.UpdateFunc = func(e crevent.UpdateEvent) bool {
		if o, ok := e.ObjectNew.(*corev1.ConfigMap); ok {
			c.event(o)
		}
		return true
	}
	cl := mgr.GetClient()
	err = builder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}, builder.WithPredicates(notice)).WatchesRawSource(adds).
		WithOptions(crcontroller.Options{MaxConcurrentReconciles: fairWorkers}).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			o := &corev1.ConfigMap{}
			if err := cl.Get(ctx, req.NamespacedName, o); err != nil || !loaded(req.Namespace) {
				return reconcile.Result{}, crclient.IgnoreNotFound(err)
			}
			return reconcile.Result{}, c.reconcile(o)
		}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
