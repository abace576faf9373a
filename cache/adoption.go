// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// EventSource delivers the events of objects to handlers, as a client-go SharedIndexInformer does.
type EventSource interface {
	AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error
	// HasSyncedChecker returns a checker that is done when the initial list is complete.
	HasSyncedChecker() toolscache.DoneChecker
	// IsStopped reports whether no more events will come.
	IsStopped() bool
}

// AdoptOptions configures Adopt. The zero value works for types of the scheme.
type AdoptOptions struct {
	// Kind is the kind of the objects. Required for unstructured and metadata objects, and for
	// types that the scheme does not know. Default: the scheme's kind of T; without a Backend,
	// client-go's scheme.
	Kind schema.GroupVersionKind
	// Scope is meta.RESTScopeNamespace or meta.RESTScopeRoot. handler.Owner needs it. Default: the
	// running cache asks the API server. Without a Backend it is unknown.
	Scope meta.RESTScope
	// Run makes the cache run the informer. Default false: the host program runs it.
	Run bool
}

// Adopt returns a handle for an informer that the cache did not make: one of the host program's
// SharedInformerFactory, of a generated factory, or of a dynamic one (with T
// *unstructured.Unstructured). It is how a controller watches such an informer:
//
//	pods := cache.Adopt[*corev1.Pod](c, factory.Core().V1().Pods().Informer(), cache.AdoptOptions{})
//	ctl.Watch(source.Kind(pods, handler.Self()))
//
// A program without a cache passes nil. Its handles work without Run, but have no Backend, and the
// source's Validate reports their mistakes. Release removes the event handlers of a handle from the
// informer, but not the indexes, because client-go cannot.
//
// An adopted informer does not report failures. Its State is Syncing until it is synced, then
// Synced until it is stopped, without counts of lists and watches. A controller waits for it
// without a limit. Its constructor and its transform decide what it keeps.
//
// An EventSource that is not a SharedIndexInformer has no store. It can be watched, but each read,
// replay and CatchUp is an error. Read-your-writes does not hold: a key does not wait until its
// writes are shown. The handle's String and State say so.
//
// A nil informer, or one with objects of another type than T, is an error of Validate, the
// manager's Run and every read. If it is still empty, the first read reports the wrong type, and
// State once the informer is synced and the cache runs. Adopting an informer twice, or one of the
// cache's own, shares it.
func Adopt[T Object](c *Cache, informer EventSource, o AdoptOptions) *Handle[T] {
	return &Handle[T]{adopt(c, informer, reflect.TypeFor[T](), o)}
}

func adopt(c *Cache, events EventSource, t reflect.Type, o AdoptOptions) handle {
	h := handle{of: t, cache: c, released: &atomic.Bool{}, alone: c == nil}
	if h.alone {
		c = New(nil, Options{})
		h.cache = c
	}
	fail := func(err error) handle {
		h.err = fmt.Errorf("cache.Adopt[%s]: %w", t, err)
		c.Reject(h.err)
		return h
	}
	if argument.IsNil(events) {
		return fail(errors.New("the informer is nil"))
	}
	informer, stores := events.(toolscache.SharedIndexInformer)
	if !stores {
		informer = storeless{toolscache.NewSharedIndexInformer(nil, nil, 0, toolscache.Indexers{}), events}
	}
	if o.Run && (h.alone || !stores) {
		return fail(errors.New("cache.AdoptOptions.Run needs a cache, and a SharedIndexInformer"))
	}
	f := &foreign{shared: informer, of: t, ours: o.Run, storeless: !stores}
	k, err := c.foreignKey(f, o.Kind)
	if err == nil {
		err = f.misfit()
	}
	if err != nil {
		return fail(err)
	}
	f.addIndexers()
	k = c.existing(k)
	h.gvk, h.group = k.gvk, newGroup(c, k, Scope{}, c.newForeign)
	if o.Scope != nil {
		resource, _ := meta.UnsafeGuessKindToResource(k.gvk) // for messages only
		h.group.members.Load().everything.view.Mapping.CompareAndSwap(nil, &meta.RESTMapping{Resource: resource, GroupVersionKind: k.gvk, Scope: o.Scope})
	}
	return h
}

// foreignKey returns the key of an informer, with the given kind or the scheme's.
func (c *Cache) foreignKey(f *foreign, kind schema.GroupVersionKind) (key, error) {
	k := key{gvk: kind, form: formOf(f.of), foreign: f}
	switch {
	case kind.Kind != "" && (kind.Version != "" || f.of == reflect.TypeFor[Object]()):
		return k, nil
	case k.form != listwatch.Typed:
		return k, errors.New("the type has no kind; set cache.AdoptOptions.Kind, with its version")
	}
	example, err := exampleOf(f.of)
	if err != nil {
		return k, err
	}
	kinds, err := c.kinds(example)
	if err != nil {
		return k, fmt.Errorf("%w; or set cache.AdoptOptions.Kind", err)
	}
	k.gvk = kinds[0]
	return k, nil
}

// kinds returns the kinds of a type. Without a Backend, it uses client-go's scheme.
func (c *Cache) kinds(obj runtime.Object) ([]schema.GroupVersionKind, error) {
	return object.Kinds(cmp.Or(c.Scheme(), scheme.Scheme), obj)
}

// existing returns the cache's key for the informer, or k. It compares the stores: client-go may
// wrap an informer to give it types.
func (c *Cache) existing(k key) key {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, i := range c.informers {
		if other.gvk == k.gvk && storedIndexer(i.shared) == storedIndexer(k.foreign.shared) {
			return other
		}
	}
	return k
}

func (f *foreign) addIndexers() {
	missing := builtInIndexers()
	for name := range f.shared.GetIndexer().GetIndexers() {
		delete(missing, name)
	}
	// It fails if the informer has stopped, or if another cache has just added them.
	_ = f.shared.AddIndexers(missing)
}

func (e *environment) newForeign(k key) *informer {
	i := &informer{key: k, env: e, foreign: !k.foreign.ours, stopped: make(chan struct{}), phase: hook.NotStarted, since: time.Now()}
	i.shared = &shared{SharedIndexInformer: k.foreign.shared, foreign: i.foreign}
	i.makeView()
	i.view.Foreign, i.view.Asked = true, e.backend != nil
	i.follow = i.run
	if i.foreign {
		i.follow, i.phase = i.attend, hook.Synced // once it is synced; see at
	}
	return i
}

func (i *informer) attend(ctx context.Context) {
	var learning sync.WaitGroup
	learning.Go(func() { i.learnMapping(ctx) })
	select {
	case <-i.synced():
		if err := i.key.foreign.misfit(); err != nil {
			i.Report(hook.Failing, err)
		}
		i.env.ring()
		i.view.Look()
		<-ctx.Done()
	case <-ctx.Done():
	}
	learning.Wait()
	i.view.End(true)
}

func (i *informer) learnMapping(ctx context.Context) {
	if i.env.backend == nil {
		return
	}
	m := i.key.target(i.env.backend).AwaitMapping(ctx)
	if m == nil {
		return
	}
	// The given resource is a guess, the given scope is not.
	if given := i.view.Mapping.Load(); given != nil {
		m = &meta.RESTMapping{Resource: m.Resource, GroupVersionKind: m.GroupVersionKind, Scope: given.Scope}
	}
	i.view.Mapping.Store(m)
	i.env.ring()
}
