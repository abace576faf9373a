// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clientgo "k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// loop reconciles a mill's objects until ctx is done.
type loop struct {
	name string
	run  func(ctx context.Context, m *mill, workers int) error
}

// loops do the same work:
//
//   - The barest loop is client-go's queue and indexer only: no copy, no logger, and a panic ends
//     the process. Its keys are namespace and name, like ours and controller-runtime's. With string
//     keys it hashes one string less and need not build the store's key.
//   - The careful loop is hand-written for production. Each key is handled by a func that recovers,
//     with a logger with the key in its context, and a copy of the object.
//   - setpoint and controller-runtime with their defaults, including reasons. Without a manager,
//     setpoint has no metrics.
//   - crbridge with the same Reconciler as controller-runtime. The objects are ConfigMaps, which it
//     stores packed by default. Custom resources with a Go type are decoded by default.
//
// Contestants that log use klog, whose loggers format only written lines. None is written.
var loops = []loop{
	{"barest loop", barestLoop(same[toolscache.ObjectName], toolscache.ObjectName.String)},
	{"barest loop, string keys", barestLoop(toolscache.ObjectName.String, same[string])},
	{"careful loop", carefulLoop},
	{"setpoint", setpointLoop(false)},
	{"setpoint, shared", setpointLoop(true)},
	controllerRuntimeLoop(runtimeName, runtimeName, cache.DefaultStorage),
	controllerRuntimeLoop(levelAName, levelAName, cache.DefaultStorage),
	controllerRuntimeLoop("crbridge, level b, decoded", levelBName, cache.Decoded),
	controllerRuntimeLoop("crbridge, level b, packed (default)", levelBName, cache.DefaultStorage),
}

// barestLoop has keys of namespace and name, or strings.
func barestLoop[K comparable](keyOf func(toolscache.ObjectName) K, stringOf func(K) string) func(context.Context, *mill, int) error {
	return func(ctx context.Context, m *mill, workers int) error {
		h, err := newHandLoop(m, keyOf)
		if err != nil {
			return err
		}
		indexer := h.informer.GetIndexer()
		return h.run(ctx, workers, h.barest(func(key K) error {
			obj, exists, err := indexer.GetByKey(stringOf(key))
			if err != nil || !exists {
				return err
			}
			return m.reconciled(obj.(*corev1.ConfigMap))
		}))
	}
}

func same[K any](key K) K { return key }

func carefulLoop(ctx context.Context, m *mill, workers int) error {
	h, err := newHandLoop(m, same[toolscache.ObjectName])
	if err != nil {
		return err
	}
	indexer := h.informer.GetIndexer()
	return h.run(ctx, workers, h.careful(ctx, func(_ context.Context, key toolscache.ObjectName) error {
		obj, exists, err := indexer.GetByKey(key.String())
		if err != nil || !exists {
			return err
		}
		return m.reconciled(obj.(*corev1.ConfigMap).DeepCopy())
	}))
}

// handLoop is a loop over client-go's queue and indexer.
type handLoop[K comparable] struct {
	queue    clientgo.TypedRateLimitingInterface[K]
	factory  clientinformers.SharedInformerFactory
	informer toolscache.SharedIndexInformer
}

func newHandLoop[K comparable](m *mill, keyOf func(toolscache.ObjectName) K) (*handLoop[K], error) {
	c, err := kubernetes.NewForConfig(m.api.Config())
	if err != nil {
		return nil, err
	}
	h := &handLoop[K]{queue: clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[K]())}
	h.factory = clientinformers.NewSharedInformerFactory(c, 0)
	h.informer = h.factory.Core().V1().ConfigMaps().Informer()
	enqueue := func(obj any) {
		if name, err := toolscache.DeletionHandlingObjectToName(obj); err == nil {
			h.queue.Add(keyOf(name))
		}
	}
	_, err = h.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, after any) { enqueue(after) }, DeleteFunc: enqueue,
	})
	var keys []K
	for i := range mills {
		keys = append(keys, keyOf(toolscache.ObjectName(millKey(i))))
	}
	m.add = func(i int) { h.queue.Add(keys[i]) }
	return h, err
}

// barest returns a func that takes a key and settles it.
func (h *handLoop[K]) barest(reconcile func(K) error) func() bool {
	return func() bool {
		key, shutdown := h.queue.Get()
		if shutdown {
			return false
		}
		if err := reconcile(key); err != nil {
			h.queue.AddRateLimited(key)
		} else {
			h.queue.Forget(key)
		}
		h.queue.Done(key)
		return true
	}
}

// careful returns the func of the careful loop.
func (h *handLoop[K]) careful(ctx context.Context, reconcile func(context.Context, K) error) func() bool {
	log := klog.LoggerWithValues(klog.Background(), "controller", "configmaps")
	sync := func(key K) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		return reconcile(klog.NewContext(ctx, klog.LoggerWithValues(log, "key", key)), key)
	}
	return func() bool {
		key, shutdown := h.queue.Get()
		if shutdown {
			return false
		}
		defer h.queue.Done(key)
		if err := sync(key); err != nil {
			log.Error(err, "reconcile failed", "key", key)
			h.queue.AddRateLimited(key)
			return true
		}
		h.queue.Forget(key)
		return true
	}
}

func (h *handLoop[K]) run(ctx context.Context, workers int, next func() bool) error {
	h.factory.StartWithContext(ctx)
	defer h.factory.Shutdown()
	defer h.queue.ShutDown()
	if !toolscache.WaitForCacheSync(ctx.Done(), h.informer.HasSynced) {
		return nil
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for next() {
			}
		})
	}
	<-ctx.Done()
	h.queue.ShutDown()
	running.Wait()
	return nil
}

func setpointLoop(shared bool) func(context.Context, *mill, int) error {
	return func(ctx context.Context, m *mill, workers int) error {
		c, err := client.New(m.api.Config(), client.Options{})
		if err != nil {
			return err
		}
		informers := cache.New(c, cache.Options{})
		objects := cache.For[*corev1.ConfigMap](informers)
		reads := objects
		if shared {
			reads = objects.Shared()
		}
		reconciler := controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
			o, err := reads.Get(ctx, k)
			if err != nil {
				return controller.Result{}, err
			}
			return controller.Result{}, m.reconciled(o)
		})
		log := slog.New(logr.ToSlogHandler(klog.Background()))
		ctrl := controller.New("configmaps", reconciler, controller.Options{Workers: workers, Logger: log})
		ctrl.Watch(source.Kind(objects, handler.Self()))
		m.add = setpointAdds(m, ctrl.Queue())
		return runWithCache(ctx, informers, ctrl.Run)
	}
}

// setpointAdds adds keys with reasons like a source's events.
func setpointAdds(m *mill, q workqueue.Adder[key]) func(int) {
	keys, hows := make([]key, mills), make([]workqueue.AddOptions, mills)
	for i := range mills {
		keys[i] = millKey(i)
		o := m.api.Object(sim.ConfigMaps, keys[i].Namespace, keys[i].Name)
		hows[i].Reason = workqueue.Reason{
			Source: "Kind(ConfigMap.v1)", Event: "update", Object: keys[i].String(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
		}
	}
	return func(i int) { q.AddWith(keys[i], hows[i]) }
}

// controllerRuntimeLoop is a contestant with controller-runtime's Reconciler.
func controllerRuntimeLoop(name, of string, s cache.Storage) loop {
	b := bridgeContestantOf(of)
	return loop{name, func(ctx context.Context, m *mill, workers int) error {
		o := b.options(nil)
		o.Logger, o.MapperProvider = klog.Background(), configMapMapper
		mgr, err := b.stored(s)(m.api.Config(), o)
		if err != nil {
			return err
		}
		var requests []reconcile.Request
		for i := range mills {
			requests = append(requests, reconcile.Request{NamespacedName: millKey(i)})
		}
		adds := crsource.Func(func(_ context.Context, q clientgo.TypedRateLimitingInterface[reconcile.Request]) error {
			m.add = func(i int) { q.Add(requests[i]) }
			return nil
		})
		c := mgr.GetClient()
		err = b.complete(mgr, wiring{object: &corev1.ConfigMap{}, source: adds, workers: workers}, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var o corev1.ConfigMap
			if err := c.Get(ctx, req.NamespacedName, &o); err != nil {
				return reconcile.Result{}, crclient.IgnoreNotFound(err)
			}
			return reconcile.Result{}, m.reconciled(&o)
		}))
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}}
}

// configMapMapper avoids controller-runtime's discovery.
func configMapMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return mapper, nil
}
