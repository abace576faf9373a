// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
)

// packedContestant keeps objects in one of three ways: hold only keeps them, work also reconciles
// them with one Get each, and index lists them by node. Each runs until its context is done.
type packedContestant struct {
	name string
	jobs map[job]func(ctx context.Context, r *packedRun) error
}

type job string

const (
	hold  job = "hold"
	work  job = "work"
	index job = "index"
	both  job = "both" // hold ConfigMaps and Pods
	// An operator of custom resources that watches Pods, with one Get of each custom resource.
	operator job = "operator"
)

const (
	clientGoName = "client-go"
	copyingName  = "client-go, copying"
	clientGoBare = "client-go, without managedFields"
	runtimeName  = "controller-runtime"
	runtimeBare  = runtimeName + ", without managedFields"
	optionBare   = optionName + ", without managedFields"
	decodedName  = "setpoint, decoded"
	packedName   = "setpoint, packed"
	byNode       = "spec.nodeName"

	// With an index of the Pods by node.
	runtimeIndexName = "controller-runtime, index"
	wholeIndexName   = "setpoint, packed, index"
	specIndexName    = "setpoint, packed, index of spec"

	reconcilerName = "packed"
)

type packedJobs = map[job]func(context.Context, *packedRun) error

// packedContestants keep the objects as each one's users get them. Those without managedFields drop
// them by a transform, which setpoint does by default.
var packedContestants = []packedContestant{
	{clientGoName, packedJobs{hold: clientGoHolds(false), work: clientGoWorks(false), index: clientGoIndexes, trim: clientGoTrims}},
	{copyingName, packedJobs{work: clientGoWorks(true)}},
	{clientGoBare, packedJobs{hold: clientGoHolds(true)}},
	{runtimeName, packedJobs{
		hold: runtimeHolds(false), work: runtimeWorks(false), index: runtimeIndexes, trim: runtimeTrims, operator: bridgeOperates(runtimeName, false),
	}},
	{optionName, packedJobs{operator: bridgeOperates(optionName, false)}},
	{optionBare, packedJobs{operator: bridgeOperates(optionName, true)}},
	{levelAName, packedJobs{operator: bridgeOperates(levelAName, false)}},
	{levelBName, packedJobs{operator: bridgeOperates(levelBName, false)}},
	{runtimeBare, packedJobs{hold: runtimeHolds(true), operator: bridgeOperates(runtimeName, true)}},
	{decodedName, setpointJobs(cache.Scope{Storage: cache.Decoded})},
	{packedName, setpointJobs(cache.Scope{Storage: cache.Packed})},
	{runtimeIndexName, packedJobs{work: runtimeWorks(true)}},
	{wholeIndexName, packedJobs{work: setpointWorksIndexed()}},
	{specIndexName, packedJobs{work: setpointWorksIndexed("spec")}},
	{leanDecodedName, leanJobs(cache.Scope{Storage: cache.Decoded})},
	{leanName, leanJobs(cache.Scope{Storage: cache.Packed})},
}

func clientGoHolds(bare bool) func(context.Context, *packedRun) error {
	return func(ctx context.Context, r *packedRun) error {
		informer, err := r.kind.informer(r.config)
		if err != nil {
			return err
		}
		if bare {
			if err := informer.SetTransform(dropManagedFields); err != nil {
				return err
			}
		}
		return runInformer(ctx, informer, func() { close(r.ready) })
	}
}

// runInformer runs an informer and calls synced once it is.
func runInformer(ctx context.Context, informer toolscache.SharedIndexInformer, synced func()) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		synced()
	}
	<-ended
	return nil
}

// clientGoWorks is a controller by hand, as in runClientGo, whose event handler compares
// generations.
func clientGoWorks(copying bool) func(context.Context, *packedRun) error {
	return func(ctx context.Context, r *packedRun) error {
		informer, err := r.kind.informer(r.config)
		if err != nil {
			return err
		}
		h := &packedByHand{
			run: r, copying: copying, store: informer.GetIndexer(),
			queue: clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[toolscache.ObjectName]()),
		}
		if _, err := informer.AddEventHandler(h.events()); err != nil {
			return err
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			informer.RunWithContext(ctx)
		}()
		h.work(ctx, informer.HasSynced)
		<-ended
		return nil
	}
}

// packedByHand is byHand for any kind.
type packedByHand struct {
	run     *packedRun
	copying bool
	store   toolscache.Indexer
	queue   clientgo.TypedRateLimitingInterface[toolscache.ObjectName]
}

func (h *packedByHand) events() toolscache.ResourceEventHandler {
	enqueue := func(obj any) {
		if name, err := toolscache.DeletionHandlingObjectToName(obj); err == nil {
			h.queue.Add(name)
		}
	}
	update := func(before, after any) {
		a, errA := meta.Accessor(before)
		b, errB := meta.Accessor(after)
		if errA != nil || errB != nil || a.GetGeneration() != b.GetGeneration() {
			enqueue(after)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: update, DeleteFunc: enqueue}
}

func (h *packedByHand) work(ctx context.Context, synced toolscache.InformerSynced) {
	var workers sync.WaitGroup
	if toolscache.WaitForCacheSync(ctx.Done(), synced) {
		for range workersOfEach {
			workers.Go(func() {
				for h.next() {
				}
			})
		}
	}
	<-ctx.Done()
	h.queue.ShutDown()
	workers.Wait()
}

func (h *packedByHand) next() bool {
	name, shutdown := h.queue.Get()
	if shutdown {
		return false
	}
	defer h.queue.Done(name)
	if err := h.reconcile(name); err != nil {
		h.queue.AddRateLimited(name)
		return true
	}
	h.queue.Forget(name)
	return true
}

// reconcile reads as a lister does, which adds a type assertion.
func (h *packedByHand) reconcile(name toolscache.ObjectName) error {
	obj, exists, err := h.store.GetByKey(name.String())
	if err != nil || !exists {
		return fmt.Errorf("%s: exists: %t, error: %w", name, exists, err)
	}
	o, ok := obj.(crclient.Object)
	if !ok {
		return fmt.Errorf("%T is not an object", obj)
	}
	if h.copying {
		o, _ = o.DeepCopyObject().(crclient.Object)
	}
	return h.run.reconciled(o)
}

func firstOf(pods []*corev1.Pod, err error) (int, crclient.Object, error) {
	if err != nil || len(pods) == 0 {
		return 0, nil, err
	}
	return len(pods), pods[0].DeepCopy(), nil
}

func runtimeCache(r *packedRun, bare bool) (crcache.Cache, error) {
	crlog.SetLogger(quietLog)
	o := crcache.Options{Scheme: newPackedScheme()}
	if bare {
		o.DefaultTransform = dropManagedFields
	}
	return crcache.New(r.config, o)
}

func runtimeHolds(bare bool) func(context.Context, *packedRun) error {
	return func(ctx context.Context, r *packedRun) error {
		c, err := runtimeCache(r, bare)
		if err != nil {
			return err
		}
		return runRuntimeCache(ctx, r, c)
	}
}

func runRuntimeCache(ctx context.Context, r *packedRun, c crcache.Cache) error {
	if _, err := c.GetInformer(ctx, r.kind.runtimes()); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	if c.WaitForCacheSync(ctx) {
		close(r.ready)
	}
	return <-ended
}

func runtimeWorks(indexed bool) func(context.Context, *packedRun) error {
	return func(ctx context.Context, r *packedRun) error { return runtimeWorksIndexed(ctx, r, indexed) }
}

func runtimeWorksIndexed(ctx context.Context, r *packedRun, indexed bool) error {
	crlog.SetLogger(quietLog)
	mgr, err := crmanager.New(r.config, crmanager.Options{
		Scheme: newPackedScheme(), Metrics: server.Options{BindAddress: "0"}, Logger: logr.FromSlogHandler(newLogHandler()),
		// By default, the client reads unstructured objects from the API server.
		Client: crclient.Options{Cache: &crclient.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return err
	}
	if indexed {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, byNode, runtimeNodeOf); err != nil {
			return err
		}
	}
	c := mgr.GetClient()
	err = builder.ControllerManagedBy(mgr).For(r.kind.runtimes()).Named(reconcilerName).WithEventFilter(predicate.GenerationChangedPredicate{}).
		WithOptions(crcontroller.Options{MaxConcurrentReconciles: workersOfEach, SkipNameValidation: new(true)}).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			o := r.kind.runtimes()
			if err := c.Get(ctx, req.NamespacedName, o); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, r.reconciled(o)
		}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func setpointJobs(s cache.Scope) packedJobs {
	return packedJobs{
		hold:  func(ctx context.Context, r *packedRun) error { return setpointHolds(ctx, r, s, r.kind) },
		work:  func(ctx context.Context, r *packedRun) error { return setpointWorks(ctx, r, s) },
		lean:  func(ctx context.Context, r *packedRun) error { return setpointWorks(ctx, r, s) },
		index: func(ctx context.Context, r *packedRun) error { return setpointIndexes(ctx, r, s) },
		trim:  setpointTrims(s),
		both: func(ctx context.Context, r *packedRun) error {
			return setpointHolds(ctx, r, s, packedKindOf("configmaps"), packedKindOf("pods"))
		},
	}
}

func setpointCache(r *packedRun) (*cache.Cache, error) {
	c, err := client.New(r.config, client.Options{Scheme: newPackedScheme()})
	if err != nil {
		return nil, err
	}
	return cache.New(c, cache.Options{}), nil
}

// setpointHolds has handles without watchers.
func setpointHolds(ctx context.Context, r *packedRun, s cache.Scope, kinds ...*packedKind) error {
	c, err := setpointCache(r)
	if err != nil {
		return err
	}
	var handles []reads
	for _, k := range kinds {
		handles = append(handles, k.handle(c, s))
	}
	return runWithCache(ctx, c, func(ctx context.Context) error {
		for _, h := range handles {
			if err := h.sync(ctx); err != nil {
				return err
			}
		}
		close(r.ready)
		<-ctx.Done()
		return nil
	})
}

func setpointWorks(ctx context.Context, r *packedRun, s cache.Scope) error {
	c, err := setpointCache(r)
	if err != nil {
		return err
	}
	return setpointWorksWith(ctx, r, c, s)
}

func setpointWorksWith(ctx context.Context, r *packedRun, c *cache.Cache, s cache.Scope) error {
	r.states = c.States
	objects := r.kind.handle(c, s)
	r.get = objects.get
	reconciler := controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
		o, err := objects.get(ctx, k)
		if err != nil {
			return controller.Result{}, err
		}
		return controller.Result{}, r.reconciled(o)
	})
	ctrl := controller.New(reconcilerName, reconciler, controller.Options{Workers: workersOfEach, Logger: slog.New(newLogHandler())})
	ctrl.Watch(objects.kind(handler.Self(), handler.GenerationChanged))
	return runWithCache(ctx, c, ctrl.Run)
}
