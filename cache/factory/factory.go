// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package factory makes a client-go SharedInformerFactory of a cache, for components that take one.
// Its listers and the handles of cache.For share one LIST and one WATCH per kind.
//
//	informers := factory.Of(mgr)
//	pods := informers.Core().V1().Pods().Lister()
//	websites := informers.InformerFor(&v1alpha1.Website{}, nil) // any type of the scheme
//
// It is a package of its own because client-go's factory compiles 170 packages.
//
// # Scope
//
// The informers hold all objects of a kind, without managedFields. The cache's Options narrow them,
// and so do the options of Of and New, which have client-go's names:
//
//	factory.Of(mgr, factory.WithNamespace("shop"), factory.WithDefaultResync(time.Hour))
//
// A lister has one informer. If the cache has several namespaces, an accessor of a namespaced kind
// is therefore an error of the cache's Validate; use cache.For, or WithNamespace. The first call of
// an accessor fixes its namespace, even if the cache's set changes later.
//
// # Use
//
// The cache starts and stops the informers: Start, Shutdown and the informers' Run methods do
// nothing. WaitForCacheSync waits until the cache runs, so call it in a runnable of the manager.
//
// Like client-go's, a lister answers before its informer is synced. If a controller uses a lister,
// give a handle of all objects of the kind to its Reads: its workers then wait for that handle.
//
// A lister cannot return an error for an object that does not fit its Go type. Read with a handle
// to decide what to delete.
//
// In a unit test, pass New a cache without a Backend and a fake clientset, and make handles with
// cache.Adopt.
//
// Stability: settling.
package factory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/setpoint-dev/setpoint/cache/internal/access"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/builtin"
)

// resyncCheck enables the resync periods of event handlers: with 0, client-go ignores them.
const resyncCheck = time.Second

// Owner is a manager or one of its clusters.
type Owner interface {
	// Cache returns the cache with the informers.
	Cache() *cache.Cache
	// Client returns the client of the same cluster.
	Client() *client.Client
}

// Of returns New for a manager's cache and client. Call it before or during Run; each call makes a
// factory. If no clientset can be made, Run returns the error.
func Of(owner Owner, options ...Option) informers.SharedInformerFactory {
	c := owner.Client()
	clientset, err := kubernetes.NewForConfigAndClient(c.Config(), c.HTTPClient())
	if err != nil {
		owner.Cache().Reject(fmt.Errorf("factory: %w", err))
		return New(owner.Cache(), nil, options...)
	}
	return New(owner.Cache(), clientset, options...)
}

// New returns a factory of a cache. It makes no request, and is safe for concurrent use.
//
// The client lists and watches the built-in kinds that the cache's scheme does not know, or all
// kinds if the cache has no Backend. InformerFor passes it to constructors. It may be nil if it is
// not needed; otherwise a nil client is an error of the cache's Validate.
//
// The first call for a Go type makes its informer, and later calls return it. The accessors use the
// cache's informers, and so does InformerFor without a constructor, for all types of the cache's
// scheme. Otherwise InformerFor uses its constructor, with the resync period of the options, and
// the cache runs the result. Only the constructor and WithTransform decide what such an informer
// keeps. It does not report failures. While the API server is unreachable, it may take up to a
// minute to stop, because client-go's reflector sleeps through a stop.
func New(c *cache.Cache, client kubernetes.Interface, options ...Option) informers.SharedInformerFactory {
	f := &factory{client: client}
	f.cache, f.resyncs = c, map[reflect.Type]time.Duration{}
	for _, set := range options {
		set(&f.settings)
	}
	if err := f.selectors(); err != nil {
		c.Reject(err)
	}
	return f
}

type factory struct {
	settings

	client kubernetes.Interface
	made   sync.Map // from reflect.Type to func() product
}

type product struct {
	handle *cache.Handle[cache.Object] // nil if a constructor made no informer
	shared toolscache.SharedIndexInformer
}

func (f *factory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return f.once(obj, func() product {
		if newFunc == nil {
			return accessors{f}.only(obj)
		}
		p := f.construct(obj, newFunc(f.client, f.resyncOf(reflect.TypeOf(obj))), f.transformFunc)
		if p.handle != nil { // whose events are bounded
			p.shared = cmp.Or(p.handle.SharedInformer(access.Factory{}), p.shared)
		}
		return p
	}).shared
}

func (f *factory) once(obj runtime.Object, how func() product) product {
	get, _ := f.made.LoadOrStore(reflect.TypeOf(obj), sync.OnceValue(how))
	return get.(func() product)() //nolint:forcetypeassert // made has no other types
}

func (f *factory) construct(obj runtime.Object, shared toolscache.SharedIndexInformer, transform toolscache.TransformFunc) product {
	if shared == nil {
		f.cache.Reject(fmt.Errorf("InformerFor(%T): the constructor returned no informer", obj))
		return product{}
	}
	if transform != nil {
		if err := shared.SetTransform(transform); err != nil {
			f.cache.Reject(fmt.Errorf("InformerFor(%T): cannot set the transform: %w", obj, err))
		}
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

type accessors struct{ *factory }

func (a accessors) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) toolscache.SharedIndexInformer {
	return a.once(obj, func() product {
		p, err := a.narrowed(obj, newFunc)
		if err != nil {
			a.cache.Reject(fmt.Errorf("InformerFactory for %T: %w", obj, err))
			return product{shared: newFunc(nil, 0)} // it never runs
		}
		return a.resyncing(p, obj)
	}).shared
}

func (a accessors) resyncing(p product, obj runtime.Object) product {
	if period := a.resyncOf(reflect.TypeOf(obj)); period != 0 {
		p.shared = resynced{p.shared, period}
	}
	return p
}

// only is InformerFor for a type without a constructor.
func (a accessors) only(obj runtime.Object) product {
	p, known, err := a.ofCache(obj)
	if !known {
		err = errors.New("the cache's scheme does not know the type and its list; add its package with AddToScheme, or give a constructor")
	}
	if err != nil {
		a.cache.Reject(fmt.Errorf("InformerFor(%T): %w", obj, err))
		return product{}
	}
	return a.resyncing(p, obj)
}

// ofCache returns the cache's own informer. known is false if the cache's scheme does not know the
// type.
func (a accessors) ofCache(obj runtime.Object) (p product, known bool, err error) {
	s := a.cache.Scheme()
	kind, ok := kindIn(s, obj)
	if !ok || !s.Recognizes(listKind(kind)) {
		return product{}, false, nil
	}
	if _, err := a.namespaceOf(kind.GroupKind()); err != nil {
		return product{}, true, err
	}
	scope := cache.Scope{Kind: kind, Labels: a.labels, Fields: a.fields, Transform: a.transform, Resync: cache.NoResync}
	if !builtin.ClusterScoped(kind.GroupKind()) {
		scope.Namespaces = a.namespaces
	}
	h := cache.ForScope[cache.Object](a.cache, scope) // never released
	if shared := h.SharedInformer(access.Factory{}); shared != nil {
		return product{h, shared}, true, nil
	}
	return product{}, true, h.Stale()
}

func (a accessors) narrowed(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) (product, error) {
	if p, known, err := a.ofCache(obj); known {
		return p, err
	}
	if a.client == nil {
		return product{}, errors.New("give factory.New a client, or the cache a Backend whose scheme knows the type")
	}
	kind, _ := kindIn(scheme.Scheme, obj)
	if _, err := a.namespaceOf(kind.GroupKind()); err != nil {
		return product{}, err
	}
	p := a.construct(obj, newFunc(a.client, resyncCheck), a.clientTransform())
	p.shared = p.handle.SharedInformer(access.Factory{})
	return p, nil
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// InformerName returns nil. The cache sends events instead of client-go's informer metrics.
func (f *factory) InformerName() *toolscache.InformerName { return nil }

// Start does nothing.
func (f *factory) Start(<-chan struct{}) {}

// StartWithContext does nothing.
func (f *factory) StartWithContext(context.Context) {}

// Shutdown does nothing.
func (f *factory) Shutdown() {}

// WaitForCacheSync is WaitForCacheSyncWithContext until stop is closed.
func (f *factory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext waits until all informers requested before the call are synced, ctx
// is done, or the cache has stopped. The result's Err is nil if all are synced.
func (f *factory) WaitForCacheSyncWithContext(ctx context.Context) toolscache.SyncResult {
	result := toolscache.SyncResult{Synced: map[reflect.Type]bool{}}
	var wrong []error
	f.made.Range(func(t, get any) bool {
		if h := get.(func() product)().handle; h != nil {
			err := h.WaitForSync(ctx)
			result.Synced[t.(reflect.Type)] = err == nil
			wrong = append(wrong, err)
		}
		return true
	})
	result.Err = errors.Join(wrong...)
	return result
}
