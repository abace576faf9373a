// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/util/workqueue"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
)

// stormer goes through a storm until ctx is done.
type stormer struct {
	name string
	run  func(ctx context.Context, cfg *rest.Config, st *storm) error
}

// stormers are both frameworks, with and without protection against stale caches.
// controller-runtime's is EnableReadYourWritesConsistency, off by default: reads wait, in the
// worker. Setpoint's is on by default: the key waits. The contestants of crbridge have the
// Reconciler of controller-runtime.
var stormers = []stormer{
	{"setpoint", stormSetpoint(0)},
	{"setpoint, never put off", stormSetpoint(-1)},
	stormControllerRuntime(runtimeName),
	stormControllerRuntime(optionName),
	stormControllerRuntime(levelAName),
	stormControllerRuntime(levelBName),
}

func stormSetpoint(bound time.Duration) func(context.Context, *rest.Config, *storm) error {
	return func(ctx context.Context, cfg *rest.Config, st *storm) error {
		c, err := client.New(cfg, client.Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		informers := cache.New(c, cache.Options{})
		parents, children := cache.For[*appsv1.Deployment](informers), cache.For[*corev1.ConfigMap](informers)
		d, m := client.For[*appsv1.Deployment](c), client.For[*corev1.ConfigMap](c)
		a := access{
			parent: found(parents.Get), child: found(children.Get),
			status: func(ctx context.Context, o *appsv1.Deployment) (*appsv1.Deployment, error) {
				return d.UpdateStatus(ctx, o)
			},
			create: func(ctx context.Context, o *corev1.ConfigMap) (*corev1.ConfigMap, error) { return m.Create(ctx, o) },
			update: func(ctx context.Context, o *corev1.ConfigMap) (*corev1.ConfigMap, error) { return m.Update(ctx, o) },
			remove: func(ctx context.Context, o *corev1.ConfigMap) error {
				return m.Delete(ctx, key{Namespace: o.Namespace, Name: o.Name})
			},
		}
		var ctrl *controller.Controller[key]
		reconciler := controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
			after, again, err := st.reconcile(ctx, a, k)
			if again && after == 0 {
				ctrl.Queue().Add(k)
			}
			return controller.Result{RequeueAfter: after}, err
		})
		ctrl = controller.New("storm", reconciler, controller.Options{
			Workers: st.workers, Logger: slog.New(newLogHandler()), ReadYourWrites: bound,
			Hook: hook.On(func(a *hook.Awaited) {
				if a.Expired {
					st.expired.Add(1)
				}
				if a.Doubts != nil {
					st.doubted.Add(1)
				}
			}),
		})
		ctrl.Watch(source.Kind(parents, handler.Self()))
		ctrl.Watch(source.Kind(children, handler.Self()))
		return runWithCache(ctx, informers, ctrl.Run)
	}
}

// found returns nil for an object that is not found.
func found[T cache.Object](get func(context.Context, key) (T, error)) func(context.Context, key) (T, error) {
	return func(ctx context.Context, k key) (T, error) {
		o, err := get(ctx, k)
		if apierrors.IsNotFound(err) {
			var none T
			return none, nil
		}
		return o, err
	}
}

// stormControllerRuntime is a contestant with controller-runtime's Reconciler.
func stormControllerRuntime(name string) stormer {
	c := bridgeContestantOf(name)
	return stormer{name, func(ctx context.Context, cfg *rest.Config, st *storm) error {
		mgr, err := c.newManager(cfg, c.options(nil))
		if err != nil {
			return err
		}
		a := accessOf(mgr.GetClient())
		var queue clientgo.TypedRateLimitingInterface[reconcile.Request]
		adds := crsource.Func(func(_ context.Context, q clientgo.TypedRateLimitingInterface[reconcile.Request]) error {
			queue = q
			return nil
		})
		w := wiring{object: &appsv1.Deployment{}, watched: &corev1.ConfigMap{}, source: adds, workers: st.workers}
		err = c.complete(mgr, w, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			after, again, err := st.reconcile(ctx, a, req.NamespacedName)
			if again && after == 0 {
				queue.Add(req)
			}
			return reconcile.Result{RequeueAfter: after}, err
		}))
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}}
}

// accessOf reads and writes with controller-runtime's client.
func accessOf(c crclient.Client) access {
	created := func(ctx context.Context, m *corev1.ConfigMap) (*corev1.ConfigMap, error) { return m, c.Create(ctx, m) }
	updated := func(ctx context.Context, m *corev1.ConfigMap) (*corev1.ConfigMap, error) { return m, c.Update(ctx, m) }
	return access{
		parent: found(func(ctx context.Context, k key) (*appsv1.Deployment, error) {
			d := &appsv1.Deployment{}
			return d, c.Get(ctx, k, d)
		}),
		child: found(func(ctx context.Context, k key) (*corev1.ConfigMap, error) {
			m := &corev1.ConfigMap{}
			return m, c.Get(ctx, k, m)
		}),
		status: func(ctx context.Context, d *appsv1.Deployment) (*appsv1.Deployment, error) {
			return d, c.Status().Update(ctx, d)
		},
		create: created,
		update: updated,
		remove: func(ctx context.Context, m *corev1.ConfigMap) error { return c.Delete(ctx, m) },
	}
}
