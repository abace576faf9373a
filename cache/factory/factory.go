// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package factory makes a client-go SharedInformerFactory of a cache, for components that take one.
// The listers of factory.Core().V1().Pods() and the handles of cache.For share one LIST and one WATCH.
//
// Its informers are those of all objects of a kind, without managedFields. They run while the cache
// runs, and stop with it: Start and Shutdown do nothing, nor does Run of an informer that an accessor
// returned. WaitForCacheSync waits for the cache to run; call it in a runnable of the manager.
//
// A lister answers from what is there, synced or not, as client-go's do. A controller that uses one
// gives a handle of all objects of the kind to its Reads: its workers wait for that.
//
// A unit test needs no server: give New a cache without a Backend and a fake clientset, and make
// handles with cache.Adopt.
package factory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
)

// resyncCheck lets event handlers have a resync period of their own: with 0 client-go ignores it.
const resyncCheck = time.Second

// New makes a factory of a cache. It starts nothing and makes no request.
//
// The client lists and watches the built-in kinds that the cache's scheme does not know; if the cache
// has no Backend, it lists and watches all of them. InformerFor gives it to constructors. It may be
// nil if none of these is needed.
//
// The first call for a Go type makes its informer, and every later one returns the same: the accessors
// take the cache's, InformerFor takes what its constructor returns, which is given no resync, and which
// the cache runs. Such an informer does not report why it is not synced. While the API server cannot be
// reached, it may take up to a minute to stop: client-go's reflector sleeps through that.
func New(c *cache.Cache, client kubernetes.Interface) informers.SharedInformerFactory {
	return &factory{cache: c, client: client, made: map[reflect.Type]func() product{}}
}

// factory implements informers.SharedInformerFactory.
type factory struct {
	cache  *cache.Cache
	client kubernetes.Interface

	mu   sync.Mutex // guards made
	made map[reflect.Type]func() product
}

// product is an informer that the factory has given out.
type product struct {
	handle *cache.Handle[cache.Object] // nil if a constructor made no informer
	shared toolscache.SharedIndexInformer
}

// InformerFor returns what newFunc makes, which the cache runs.
func (f *factory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return f.once(obj, func() product {
		if newFunc == nil {
			return f.construct(obj, nil)
		}
		return f.construct(obj, newFunc(f.client, 0))
	}).shared
}

// once returns what the first call for the type of obj has made.
func (f *factory) once(obj runtime.Object, how func() product) product {
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
func (f *factory) construct(obj runtime.Object, shared toolscache.SharedIndexInformer) product {
	if shared == nil {
		f.cache.Reject(fmt.Errorf("InformerFor(%T): there is no constructor, or it returned no informer", obj))
		return product{}
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	if known, ok := kindIn(f.cache.Scheme(), obj); ok {
		kind = known
	} else if known, ok := kindIn(scheme.Scheme, obj); ok {
		kind = known
	}
	if t := reflect.TypeOf(obj); kind.Kind == "" && t.Kind() == reflect.Pointer {
		kind.Kind = t.Elem().Name() // as what it is served is guessed from that
	}
	return product{cache.Adopt[cache.Object](f.cache, shared, cache.AdoptOptions{Kind: kind, Run: true}), shared}
}

// kindIn returns the kind of an object, if the scheme knows it.
func kindIn(s *runtime.Scheme, obj runtime.Object) (kind schema.GroupVersionKind, ok bool) {
	if s == nil {
		return kind, false
	}
	kinds, _, err := s.ObjectKinds(obj)
	if err != nil {
		return kind, false
	}
	return kinds[0], true
}

// accessors is what the accessors of the groups ask for their informers.
type accessors struct{ *factory }

// InformerFor returns the cache's informer for the Go type of obj.
func (a accessors) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return a.once(obj, func() product { return a.standard(obj, newFunc) }).shared
}

// standard takes the informer of all objects from the cache if it can list them, else from client-go's
// constructor.
func (a accessors) standard(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) product {
	s := a.cache.Scheme()
	if kind, ok := kindIn(s, obj); ok && s.Recognizes(listKind(kind)) {
		h := cache.ForScope[cache.Object](a.cache, cache.Scope{Kind: kind})
		return product{h, h.Informer()} // and never released
	}
	if a.client == nil {
		a.cache.Reject(fmt.Errorf("InformerFactory for %T: give factory.New a client, or the cache a Backend whose scheme knows the type", obj))
		return product{shared: newFunc(nil, 0)} // it never runs
	}
	p := a.construct(obj, newFunc(a.client, resyncCheck))
	p.shared = p.handle.Informer()
	return p
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// InformerName returns nil: the cache has hooks instead of client-go's informer metrics.
func (f *factory) InformerName() *toolscache.InformerName { return nil }

// Start does nothing: the informers run while the cache does.
func (f *factory) Start(<-chan struct{}) {}

// StartWithContext does nothing, as Start.
func (f *factory) StartWithContext(context.Context) {}

// Shutdown does nothing: the cache stops the informers and joins them when it ends.
func (f *factory) Shutdown() {}

// WaitForCacheSync is WaitForCacheSyncWithContext until stop is closed.
func (f *factory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext waits until every informer that was asked for before the call is synced,
// ctx is done, or the cache has ended. The Err of the result is nil if all are synced.
func (f *factory) WaitForCacheSyncWithContext(ctx context.Context) toolscache.SyncResult {
	f.mu.Lock()
	made := maps.Clone(f.made)
	f.mu.Unlock()
	result := toolscache.SyncResult{Synced: map[reflect.Type]bool{}}
	var wrong []error
	for t, get := range made {
		if h := get().handle; h != nil {
			err := h.WaitForSync(ctx)
			result.Synced[t] = err == nil
			wrong = append(wrong, err)
		}
	}
	result.Err = errors.Join(wrong...)
	return result
}
