// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package factory makes a client-go SharedInformerFactory of a cache, for components that take one.
// Its listers and the handles of cache.For share one LIST and one WATCH per kind.
//
//	informers := factory.New(c, clientset)
//	pods := informers.Core().V1().Pods().Lister()
//
// # Life
//
// The informers hold all objects of a kind, without managedFields. The cache starts and stops them:
// Start, Shutdown and the Run methods of the accessors' informers do nothing. WaitForCacheSync
// waits until the cache runs, so call it in a runnable of the manager.
//
// # Listers
//
// Like client-go's, a lister also answers before its informer is synced. If a controller uses a
// lister, give a handle of all objects of the kind to its Reads: its workers then wait for that
// handle.
//
// # Unit tests
//
// A unit test needs no server: pass New a cache without a Backend and a fake clientset, and make
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

// resyncCheck enables the resync periods of event handlers: with 0, client-go ignores them.
const resyncCheck = time.Second

// New returns a factory of a cache. It starts nothing and makes no request. The factory is safe for
// concurrent use.
//
// The client lists and watches the built-in kinds that the cache's scheme does not know. If the
// cache has no Backend, the client lists and watches all kinds. InformerFor passes the client to
// constructors. The client may be nil if none of these is needed; an accessor that needs one is an
// error of the cache's Validate.
//
// The first call for a Go type makes its informer, and later calls return the same one. The
// accessors use the cache's informers. InformerFor uses its constructor, with a resync period of 0,
// and the cache runs the result. Such an informer does not report failures. It may take up to a
// minute to stop while the API server is unreachable: client-go's reflector sleeps through a stop.
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

// product is an informer that the factory returned.
type product struct {
	handle *cache.Handle[cache.Object] // nil if a constructor made no informer
	shared toolscache.SharedIndexInformer
}

// InformerFor returns the informer that newFunc makes. The cache runs it.
func (f *factory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return f.once(obj, func() product {
		if newFunc == nil {
			return f.construct(obj, nil)
		}
		return f.construct(obj, newFunc(f.client, 0))
	}).shared
}

// once returns the result of the first call for the type of obj.
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

// construct adopts an informer that the cache must run.
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
		kind.Kind = t.Elem().Name() // its resource is guessed from this
	}
	return product{cache.Adopt[cache.Object](f.cache, shared, cache.AdoptOptions{Kind: kind, Run: true}), shared}
}

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

// accessors makes the informers of the API groups' accessors.
type accessors struct{ *factory }

// InformerFor returns the cache's informer for the Go type of obj.
func (a accessors) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return a.once(obj, func() product { return a.standard(obj, newFunc) }).shared
}

// standard returns the cache's informer of all objects, or client-go's if the cache cannot list the
// kind.
func (a accessors) standard(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) product {
	s := a.cache.Scheme()
	if kind, ok := kindIn(s, obj); ok && s.Recognizes(listKind(kind)) {
		h := cache.ForScope[cache.Object](a.cache, cache.Scope{Kind: kind})
		return product{h, h.Informer()} // never released
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

// InformerName returns nil. The cache has hooks instead of client-go's informer metrics.
func (f *factory) InformerName() *toolscache.InformerName { return nil }

// Start does nothing. The cache starts the informers.
func (f *factory) Start(<-chan struct{}) {}

// StartWithContext does nothing. The cache starts the informers.
func (f *factory) StartWithContext(context.Context) {}

// Shutdown does nothing. The cache stops the informers and joins them.
func (f *factory) Shutdown() {}

// WaitForCacheSync is WaitForCacheSyncWithContext until stop is closed.
func (f *factory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext waits until all informers requested before the call are synced, ctx
// is done, or the cache has stopped. Err of the result is nil if all are synced.
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
