// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	theircache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/setpoint-dev/setpoint/cache"
)

// form is how objects are read. Each form has an informer of its own.
type form uint8

const (
	typed form = iota
	free       // unstructured
	metadata
)

type kindForm struct {
	gvk  schema.GroupVersionKind
	form form
}

// cache is controller-runtime's interface of a cache of Setpoint. It declares a kind when it is
// asked for it.
type bridgeCache struct {
	own     *cache.Cache
	options theircache.Options
	keep    bool // managedFields

	// byType has the kinds of typed objects and lists that were read, by their reflect.Type.
	byType sync.Map

	mu     sync.Mutex
	kinds  map[kindForm]kind
	begun  chan struct{} // closed by begin
	starts sync.Once
}

var _ theircache.Cache = (*bridgeCache)(nil)

func newCache(own *cache.Cache, o theircache.Options, keep bool) *bridgeCache {
	return &bridgeCache{own: own, options: o, keep: keep, kinds: map[kindForm]kind{}, begun: make(chan struct{})}
}

// provide is a NewCacheFunc.
func (c *bridgeCache) provide(*rest.Config, theircache.Options) (theircache.Cache, error) {
	return c, nil
}

// kindFormOf returns the kind of an object or a list.
func (c *bridgeCache) kindFormOf(obj runtime.Object) (kindForm, error) {
	gvk, err := apiutil.GVKForObject(obj, c.own.Scheme())
	if err != nil {
		return kindForm{}, err
	}
	if meta.IsListType(obj) {
		gvk.Kind = singular(gvk.Kind)
	}
	k := kindForm{gvk: gvk}
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		k.form = metadata
	case runtime.Unstructured:
		k.form = free
	}
	return k, nil
}

func singular(listKind string) string {
	if n := len(listKind) - len("List"); n > 0 && listKind[n:] == "List" {
		return listKind[:n]
	}
	return listKind
}

// of returns a kind, and declares it at the first call.
func (c *bridgeCache) of(obj runtime.Object) (kind, error) {
	t := reflect.TypeOf(obj)
	if known, ok := c.byType.Load(t); ok {
		return known.(kind), nil //nolint:forcetypeassert // it has only kinds
	}
	k, err := c.kindFormOf(obj)
	if err != nil {
		return nil, err
	}
	declared, err := c.declared(k)
	if err == nil && k.form == typed {
		c.byType.Store(t, declared)
	}
	return declared, err
}

func (c *bridgeCache) declared(k kindForm) (kind, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.kinds[k]; known != nil {
		return known, nil
	}
	scope, err := c.scope(k.gvk)
	if err != nil {
		return nil, err
	}
	var made kind
	switch k.form {
	case free:
		made = newKind[*unstructured.Unstructured](c.own, scope)
	case metadata:
		made = newKind[*metav1.PartialObjectMetadata](c.own, scope)
	default:
		made = newKind[cache.Object](c.own, scope)
	}
	if err := made.validate(); err != nil {
		return nil, err
	}
	c.kinds[k] = made
	return made, nil
}

func (c *bridgeCache) scope(gvk schema.GroupVersionKind) (scope cache.Scope, err error) {
	for obj, by := range c.options.ByObject {
		if of, err := apiutil.GVKForObject(obj, c.own.Scheme()); err != nil {
			return scope, err
		} else if of == gvk {
			if scope, err = scopeOf(fmt.Sprintf("ctrl.Options.Cache.ByObject of %T", obj), by); err != nil {
				return scope, err
			}
		}
	}
	if scope.Fields == nil {
		scope.Fields = c.options.DefaultFieldSelector
	}
	scope.Kind, scope.KeepManagedFields = gvk, c.keep
	return scope, nil
}

// Get reads an object from the cache.
func (c *bridgeCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if err := cmp.Or(c.started(), c.missing(into)); err != nil {
		return err
	}
	k, err := c.readable(ctx, into)
	if err != nil {
		return err
	}
	shared := false
	if len(opts) > 0 {
		o := (&client.GetOptions{}).ApplyOptions(opts)
		shared = o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy
	}
	obj, err := k.get(ctx, key, shared)
	if err != nil && synced(ctx, k, err) {
		obj, err = k.get(ctx, key, shared)
	}
	if err != nil {
		return timeout(ctx, err)
	}
	target := reflect.ValueOf(into)
	if target.Type() != reflect.TypeOf(obj) {
		return fmt.Errorf("crbridge: the cache has %T for %s, not %T", obj, k, into)
	}
	target.Elem().Set(reflect.ValueOf(obj).Elem())
	if !shared {
		into.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind())
	}
	return nil
}

// List reads objects from the cache. As in controller-runtime, a field selector needs an index for
// each field, and continue is not supported.
func (c *bridgeCache) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if err := cmp.Or(c.started(), c.missing(into)); err != nil {
		return err
	}
	k, err := c.readable(ctx, into)
	if err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Continue != "" {
		return errors.New("crbridge: the cache has no pages; leave Continue empty, or read with the manager's APIReader")
	}
	objects, err := k.list(ctx, &o)
	if err != nil && synced(ctx, k, err) {
		objects, err = k.list(ctx, &o)
	}
	if err != nil {
		return timeout(ctx, err)
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
			obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind())
		}
		items = append(items, obj)
	}
	if err := meta.SetList(into, items); err != nil {
		return fmt.Errorf("crbridge: %T: %w", into, err)
	}
	into.SetContinue("continue-not-supported") // as controller-runtime's does
	return nil
}

// started returns an error before Start, as in controller-runtime: a read would wait until its
// context ends, and a program that reads before it starts the manager would hang.
func (c *bridgeCache) started() error {
	select {
	case <-c.begun:
		return nil
	default:
		return &theircache.ErrCacheNotStarted{}
	}
}

// timeout makes an error a timeout of package apierrors, as in controller-runtime, if ctx has
// ended.
func timeout(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", apierrors.NewTimeoutError("crbridge: the cache is not synced in time", 0), err)
}

// missing returns an error if nothing has asked for an informer of a kind that only a read would
// declare, and Options.ReaderFailOnMissingInformer is set.
func (c *bridgeCache) missing(obj runtime.Object) error {
	if !c.options.ReaderFailOnMissingInformer {
		return nil
	}
	k, err := c.kindFormOf(obj)
	c.mu.Lock()
	known := c.kinds[k] != nil
	c.mu.Unlock()
	if err == nil && !known {
		return &theircache.ErrResourceNotCached{GVK: k.gvk}
	}
	return err
}

// synced waits after a read that has failed because the first list failed for a reason that passes,
// such as an API server that has just got the CRD. It reports whether to read again. Handles return
// such an error at once; readers of controller-runtime expect to wait.
func synced(ctx context.Context, k kind, err error) bool {
	if !errors.Is(err, cache.ErrNotSynced) {
		return false
	}
	why := k.State().Err
	passes := why == nil || apierrors.IsTooManyRequests(why) || apierrors.IsServiceUnavailable(why)
	return passes && k.WaitForSync(ctx) == nil
}

// readable returns a kind that the Reconcile of a context may read.
func (c *bridgeCache) readable(ctx context.Context, obj runtime.Object) (kind, error) {
	k, err := c.of(obj)
	if err == nil {
		if by, ok := ctx.Value(builtKey{}).(*built); ok {
			err = by.declare(k)
		}
	}
	return k, err
}

// IndexField declares an index for field selectors of List.
func (c *bridgeCache) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	k, err := c.of(obj)
	if err != nil {
		return err
	}
	return k.index(field, values)
}

// GetInformer returns the events of a kind. It waits until the kind is synced if the cache runs.
func (c *bridgeCache) GetInformer(ctx context.Context, obj client.Object, opts ...theircache.InformerGetOption) (theircache.Informer, error) {
	k, err := c.readable(ctx, obj)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, k, opts)
}

// GetInformerForKind is GetInformer for a kind of the scheme, or else for unstructured objects.
func (c *bridgeCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...theircache.InformerGetOption) (theircache.Informer, error) {
	k := kindForm{gvk: gvk}
	if !c.own.Scheme().Recognizes(gvk) {
		k.form = free
	}
	declared, err := c.declared(k)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, declared, opts)
}

func (c *bridgeCache) informer(ctx context.Context, k kind, opts []theircache.InformerGetOption) (theircache.Informer, error) {
	var o theircache.InformerGetOptions
	for _, set := range opts {
		set(&o)
	}
	if c.started() == nil && (o.BlockUntilSynced == nil || *o.BlockUntilSynced) {
		if err := k.WaitForSync(ctx); err != nil {
			return nil, timeout(ctx, err)
		}
	}
	return &informer{kind: k}, nil
}

// RemoveInformer gives the informer of a kind back. Event handlers stay until they are removed.
func (c *bridgeCache) RemoveInformer(_ context.Context, obj client.Object) error {
	k, err := c.kindFormOf(obj)
	if err != nil {
		return err
	}
	c.mu.Lock()
	removed := c.kinds[k]
	delete(c.kinds, k)
	c.byType.Clear()
	c.mu.Unlock()
	if removed != nil {
		removed.release()
	}
	return nil
}

// begin lets reads wait for the cache, which the manager is about to run.
func (c *bridgeCache) begin() { c.starts.Do(func() { close(c.begun) }) }

// Start returns when ctx ends. The manager runs the cache.
func (c *bridgeCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// WaitForCacheSync waits until the cache runs, and all kinds that are known then are synced.
func (c *bridgeCache) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c.begun:
	case <-ctx.Done():
		return false
	}
	c.mu.Lock()
	all := make([]kind, 0, len(c.kinds))
	for _, k := range c.kinds {
		all = append(all, k)
	}
	c.mu.Unlock()
	for _, k := range all {
		if k.Settled(ctx) != nil {
			return false
		}
		if meta.IsNoMatchError(k.State().Err) {
			continue // in controller-runtime it has no informer, so nothing else waits for it
		}
		if k.WaitForSync(ctx) != nil {
			return false
		}
	}
	return true
}
