// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// workersOfEach is the number of workers of each contestant.
const workersOfEach = 10

// contestant lists and watches all ConfigMaps and queues their keys. Its workers read each object
// by key. It runs until ctx is done.
type contestant struct {
	name string
	run  func(ctx context.Context, r *race) error
}

// contestants do the same work, each in its usual way:
//
//   - client-go by hand, like sample-controller: a shared informer factory, protobuf, and a rate
//     limiting queue of object names. "copying" copies each object that it reads, which is required
//     before changing it.
//   - controller-runtime with a manager, which it needs, without a metrics server.
//   - setpoint with a cache and a controller, without a manager, to match client-go by hand. A
//     manager adds a goroutine or two, and nothing per object.
//
// Contestants that log have the same JSON logger, so the cost of a logger per Reconcile is
// included. The common transform drops managedFields; setpoint's own, which does that by default,
// is then off. With their defaults, client-go and controller-runtime keep managedFields.
var contestants = []contestant{
	{"client-go", runClientGo(false)},
	{"setpoint, shared", runSetpoint(true)},
	{"client-go, copying", runClientGo(true)},
	{"setpoint", runSetpoint(false)},
	{"controller-runtime", runControllerRuntime},
}

// race is one run of a contestant.
type race struct {
	config *rest.Config
	same   bool // all have the same transform
	bare   bool // the objects have no data
	all    int64
	n      atomic.Int64
	done   chan struct{} // closed when all objects have been reconciled
}

// reconciled counts an object that was read.
func (r *race) reconciled(m *corev1.ConfigMap) error {
	if !loaded(m.Namespace) {
		return nil
	}
	if !r.bare && len(m.Data) != 1 || (r.same && m.ManagedFields != nil) {
		return fmt.Errorf("%s/%s is not what was loaded", m.Namespace, m.Name)
	}
	if r.n.Add(1) == r.all {
		close(r.done)
	}
	return nil
}

// dropManagedFields is the common transform.
func dropManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func newLogHandler() slog.Handler { return slog.NewJSONHandler(io.Discard, nil) }

func runClientGo(copying bool) func(context.Context, *race) error {
	return func(ctx context.Context, r *race) error {
		cfg := rest.CopyConfig(r.config)
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		c, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		var options []clientinformers.SharedInformerOption
		if r.same {
			options = append(options, clientinformers.WithTransform(dropManagedFields))
		}
		factory := clientinformers.NewSharedInformerFactoryWithOptions(c, 0, options...)
		h := &byHand{
			race: r, copying: copying, lister: factory.Core().V1().ConfigMaps().Lister(),
			queue: clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[toolscache.ObjectName]()),
		}
		informer := factory.Core().V1().ConfigMaps().Informer()
		if _, err := informer.AddEventHandler(h.events()); err != nil {
			return err
		}
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
		return h.run(ctx, informer.HasSynced)
	}
}

// byHand is a controller written with client-go alone.
type byHand struct {
	race    *race
	copying bool
	lister  listers.ConfigMapLister
	queue   clientgo.TypedRateLimitingInterface[toolscache.ObjectName]
}

func (h *byHand) events() toolscache.ResourceEventHandler {
	enqueue := func(obj any) {
		if name, err := toolscache.DeletionHandlingObjectToName(obj); err == nil {
			h.queue.Add(name)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, after any) { enqueue(after) }, DeleteFunc: enqueue}
}

func (h *byHand) run(ctx context.Context, synced toolscache.InformerSynced) error {
	defer h.queue.ShutDown()
	if !toolscache.WaitForCacheSync(ctx.Done(), synced) {
		return nil
	}
	var workers sync.WaitGroup
	for range workersOfEach {
		workers.Go(func() {
			for h.processNextItem(ctx) {
			}
		})
	}
	<-ctx.Done()
	h.queue.ShutDown()
	workers.Wait()
	return nil
}

func (h *byHand) processNextItem(ctx context.Context) bool {
	name, shutdown := h.queue.Get()
	if shutdown {
		return false
	}
	defer h.queue.Done(name)
	if err := h.reconcile(ctx, name); err != nil {
		h.queue.AddRateLimited(name)
		return true
	}
	h.queue.Forget(name)
	return true
}

func (h *byHand) reconcile(_ context.Context, name toolscache.ObjectName) error {
	m, err := h.lister.ConfigMaps(name.Namespace).Get(name.Name)
	if err != nil {
		return err
	}
	if h.copying {
		m = m.DeepCopy()
	}
	return h.race.reconciled(m)
}

func runControllerRuntime(ctx context.Context, r *race) error {
	log := logr.FromSlogHandler(newLogHandler())
	o := crmanager.Options{Metrics: server.Options{BindAddress: "0"}, Logger: log}
	if r.same {
		o.Cache = crcache.Options{DefaultTransform: dropManagedFields}
	}
	mgr, err := crmanager.New(r.config, o)
	if err != nil {
		return err
	}
	c := mgr.GetClient()
	err = builder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithOptions(crcontroller.Options{MaxConcurrentReconciles: workersOfEach}).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var m corev1.ConfigMap
			if err := c.Get(ctx, req.NamespacedName, &m); err != nil {
				return reconcile.Result{}, crclient.IgnoreNotFound(err)
			}
			return reconcile.Result{}, r.reconciled(&m)
		}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func runSetpoint(shared bool) func(context.Context, *race) error {
	return func(ctx context.Context, r *race) error {
		c, err := client.New(r.config, client.Options{})
		if err != nil {
			return err
		}
		informers := cache.New(c, cache.Options{})
		var scope cache.Scope
		if r.same {
			scope.KeepManagedFields = true
			scope.Transform = cache.NewTransform("drop managedFields", func(m *corev1.ConfigMap) { _, _ = dropManagedFields(m) })
		}
		objects := cache.ForScope[*corev1.ConfigMap](informers, scope)
		reads := objects
		if shared {
			reads = objects.Shared()
		}
		reconciler := controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
			m, err := reads.Get(ctx, k)
			if err != nil {
				return controller.Result{}, err
			}
			return controller.Result{}, r.reconciled(m)
		})
		ctrl := controller.New("configmaps", reconciler, controller.Options{Workers: workersOfEach, Logger: slog.New(newLogHandler())})
		ctrl.Watch(source.Kind(objects, handler.Self()))
		return runWithCache(ctx, informers, ctrl.Run)
	}
}

// runWithCache keeps the cache running until all functions in run have returned.
func runWithCache(ctx context.Context, informers *cache.Cache, run ...func(context.Context) error) error {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var caching, running sync.WaitGroup
	errs := make([]error, len(run)+1)
	caching.Go(func() { errs[len(run)] = informers.Run(lasting) })
	for i, f := range run {
		running.Go(func() { errs[i] = f(ctx) })
	}
	running.Wait()
	cancel()
	caching.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
