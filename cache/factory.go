// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// InformerFactory is a client-go SharedInformerFactory over a cache: what takes one works with the informers of the cache, so
// that factory.Core().V1().Pods().Lister() and the handles of cache.For share one LIST and one WATCH (S7). NewInformerFactory
// makes one; a manager has one.
//
// Its informers are those of all objects of a kind, without managedFields. They run while the cache runs, and are never
// stopped before its end. Start and Shutdown do nothing, nor does an informer's own Run, which returns when it is asked to stop.
type InformerFactory struct {
	cache  *Cache
	client kubernetes.Interface

	mu   sync.Mutex // guards made
	made map[reflect.Type]func() product
}

// product is an informer that the factory has given out.
type product struct {
	informer *informer                      // nil of a constructor that made none
	shared   toolscache.SharedIndexInformer // as it was given out
}

var _ informers.SharedInformerFactory = &InformerFactory{}

// NewInformerFactory makes a factory of a cache. It starts nothing and makes no request. The client is what InformerFor gives to
// constructors, and lists and watches the built-in kinds that the cache's scheme does not know; it may be nil where there are
// neither. If the cache was made without a Backend, all informers list and watch with the client, as client-go's do: with a fake
// clientset, a test needs no server.
func NewInformerFactory(c *Cache, client kubernetes.Interface) *InformerFactory {
	return &InformerFactory{cache: c, client: client, made: map[reflect.Type]func() product{}}
}

// InformerFor returns the informer for the Go type of obj. The first call for a type makes it: an accessor such as
// factory.Core().V1().Pods().Informer() takes the cache's; this method takes what newFunc returns, which is given the factory's
// client and no resync, and the cache runs that. Every call for the type returns the same from then on, those of the accessors
// included, as in client-go; handles of cache.For keep to the cache's own. An informer made by newFunc does not say why it is
// not synced, and while the API server cannot be reached it may take up to a minute to stop: client-go's reflector sleeps
// through that (47 seconds were measured).
func (f *InformerFactory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return f.once(obj, func() product {
		if newFunc == nil {
			return f.construct(obj, nil)
		}
		return f.construct(obj, newFunc(f.client, 0))
	}).shared
}

// once returns what the first call for the type of obj has made.
func (f *InformerFactory) once(obj runtime.Object, how func() product) product {
	f.mu.Lock()
	get := f.made[reflect.TypeOf(obj)]
	if get == nil {
		get = sync.OnceValue(how)
		f.made[reflect.TypeOf(obj)] = get
	}
	f.mu.Unlock()
	return get()
}

// construct has the cache run an informer that was made for it.
func (f *InformerFactory) construct(obj runtime.Object, shared toolscache.SharedIndexInformer) product {
	if argument.IsNil(shared) {
		_ = f.cache.reject(fmt.Errorf("InformerFactory.InformerFor(%T): there is no constructor, or it returned no informer", obj))
		return product{}
	}
	k := key{form: formOf(reflect.TypeOf(obj)), foreign: &foreign{shared: shared, of: reflect.TypeOf(obj), ours: true}}
	k.gvk = obj.GetObjectKind().GroupVersionKind()
	if kinds, _, err := f.cache.backend.Scheme().ObjectKinds(obj); err == nil {
		k.gvk = kinds[0]
	}
	if k.gvk.Kind == "" {
		k.gvk.Kind = reflect.TypeOf(obj).String() // it is only for reports
	}
	example, _ := obj.(Object)
	return product{f.cache.acquire(f.cache.existing(k), example), shared}
}

// accessors is what the accessors of the groups ask for their informers.
type accessors struct{ *InformerFactory }

// InformerFor returns the cache's informer for the Go type of obj.
func (a accessors) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return a.once(obj, func() product { return a.standard(obj, newFunc) }).shared
}

// standard takes the informer of all objects from the cache if it can list them, else from client-go's constructor.
func (a accessors) standard(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) product {
	if example, ok := obj.(Object); ok && a.cache.hasBackend() {
		if gvk, err := (Scope{}).kindOf(a.cache.backend.Scheme(), example); err == nil {
			i := a.cache.acquire(Scope{}.key(gvk, typed), example) // and never released
			return product{i, pinned{i.shared}}
		}
	}
	if a.client == nil {
		_ = a.cache.reject(fmt.Errorf("InformerFactory for %T: give cache.NewInformerFactory a client, or the cache a Backend whose scheme knows the type", obj))
		return product{shared: pinned{newFunc(nil, 0)}} // it never runs
	}
	p := a.construct(obj, ownResync{newFunc(a.client, resyncCheck)})
	p.shared = pinned{p.shared}
	return p
}

// pinned is an informer that the cache runs.
type pinned struct{ toolscache.SharedIndexInformer }

// Run waits until it is asked to stop. The cache runs the informer.
func (p pinned) Run(stop <-chan struct{}) { <-stop }

// RunWithContext waits until ctx is done. The cache runs the informer.
func (p pinned) RunWithContext(ctx context.Context) { <-ctx.Done() }

// InformerName returns nil: the hooks of the cache tell more than client-go's informer metrics.
func (f *InformerFactory) InformerName() *toolscache.InformerName { return nil }

// Start does nothing: the informers run while the cache does, so that whoever starts the factory, as components built on
// client-go do, starts nothing twice. It may be called at any time.
func (f *InformerFactory) Start(<-chan struct{}) {}

// StartWithContext does nothing, as Start.
func (f *InformerFactory) StartWithContext(context.Context) {}

// Shutdown does nothing: the cache stops the informers and joins them when it ends. It may be called at any time.
func (f *InformerFactory) Shutdown() {}

// WaitForCacheSync waits until every informer that was asked for before the call is synced, and returns which are. It returns
// early when stop is closed, or when the cache has ended. Before the cache runs there is nothing to be synced, and it waits:
// call it in a runnable of the manager, not before the manager's Run.
func (f *InformerFactory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext is WaitForCacheSync until ctx is done. The Err of the result is nil if all are synced.
func (f *InformerFactory) WaitForCacheSyncWithContext(ctx context.Context) toolscache.SyncResult {
	result := toolscache.SyncResult{Synced: map[reflect.Type]bool{}}
	for t, i := range f.informers() {
		select {
		case <-i.synced():
		case <-i.stopped:
		case <-ctx.Done():
		}
		result.Synced[t] = i.hasSynced()
		switch {
		case i.hasSynced() || result.Err != nil:
		case ctx.Err() != nil:
			result.Err = fmt.Errorf("not synced: %s: %w", i.state(), context.Cause(ctx))
		default:
			result.Err = fmt.Errorf("not synced, and never will be: %s", i.state())
		}
	}
	return result
}

// informers returns what the factory has given out.
func (f *InformerFactory) informers() map[reflect.Type]*informer {
	f.mu.Lock()
	made := maps.Clone(f.made)
	f.mu.Unlock()
	all := map[reflect.Type]*informer{}
	for t, get := range made {
		if i := get().informer; i != nil {
			all[t] = i
		}
	}
	return all
}
