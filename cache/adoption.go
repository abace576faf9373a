// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// AdoptOptions configures Adopt. The zero value works for the types that the scheme knows.
type AdoptOptions struct {
	// Kind is the kind of the objects. Default: what the scheme says of T, which is client-go's where the cache has no Backend.
	// It is needed for *unstructured.Unstructured and *metav1.PartialObjectMetadata, and for what the scheme does not know.
	Kind schema.GroupVersionKind
	// Scope is meta.RESTScopeNamespace or meta.RESTScopeRoot: whether the objects live in namespaces. handler.Owner asks for
	// it. Default: what the API server says, which is asked while the cache runs; without a Backend it is not known.
	Scope meta.RESTScope
	// Run makes the cache run the informer while the cache itself runs. The host program must not run
	// it then. Default: the host program runs it.
	Run bool
}

// Adopt returns a handle for the objects of an informer that the cache did not make: one of the host
// program's SharedInformerFactory, of a generated factory for custom resources, or of a dynamic one (T
// is *unstructured.Unstructured then). The cache asks of it nothing but AddEventHandler and
// AddIndexers, and neither starts nor stops it unless AdoptOptions.Run is set. Release takes our event
// handlers off it; indexes stay as long as the informer, because client-go cannot remove them.
//
// Such an informer does not report why it is not synced, nor that it cannot watch any more. State is
// Syncing until it is synced and Synced until it is stopped, and counts no lists and watches. A
// controller waits for it for as long as that takes. Its own constructor and its transform decide what
// is kept.
//
// A nil informer, or one that does not hold objects of type T, is an error that Validate, the manager's
// Run and every read return. If the informer is still empty, the latter shows at the first read, or, in
// State, when it is synced. Adopting an informer twice is as good as once; adopting one of the cache's
// own is as good as a handle for it.
//
// A nil cache is for an informer that is only declared, so that a controller waits until it shows what
// was written; source.Informer does that. Its kind need not be known. It is then taken to keep objects
// of any resource of the usual plural of T's name, or, if T has no Go type of its own, of the kind of
// the first object in its store. A write of an object that is in the store, with its UID, tells the
// resource for certain.
func Adopt[T Object](c *Cache, informer toolscache.SharedIndexInformer, o AdoptOptions) *Handle[T] {
	only := c == nil // declared
	if only {
		c = New(nil, Options{})
	}
	h := &Handle[T]{cache: c, released: &atomic.Bool{}}
	t := reflect.TypeFor[T]()
	fail := func(err error) *Handle[T] {
		h.err = fmt.Errorf("cache.Adopt[%s]: %w", t, err)
		c.Reject(h.err)
		return h
	}
	if argument.IsNil(informer) {
		return fail(errors.New("the informer is nil"))
	}
	f := &foreign{shared: informer, of: t, ours: o.Run}
	k, err := c.foreignKey(f, o.Kind)
	if err != nil && !only {
		return fail(err)
	}
	if o.Run {
		f.shared = shared{informer}
	}
	if !only {
		if err := f.misfit(); err != nil {
			return fail(err)
		}
		f.addIndexers()
		k = c.existing(k)
	}
	h.gvk, h.group = k.gvk, newGroup(c, k, Scope{}, c.newForeign)
	if o.Scope != nil {
		resource, _ := meta.UnsafeGuessKindToResource(k.gvk) // it is only for messages
		h.group.members.Load().everything.copy.Mapping.CompareAndSwap(nil, &meta.RESTMapping{Resource: resource, GroupVersionKind: k.gvk, Scope: o.Scope})
	}
	return h
}

// foreignKey returns the key of an informer. The kind is that of its type in the scheme, unless it is
// given. With an error the key is only good for reports.
func (c *Cache) foreignKey(f *foreign, kind schema.GroupVersionKind) (key, error) {
	k := key{gvk: kind, form: formOf(f.of), foreign: f}
	switch {
	case f.of == reflect.TypeFor[Object](), kind.Kind != "" && kind.Version != "":
		return k, nil
	case k.form != listwatch.Typed:
		return k, errors.New("the type says no kind; give cache.AdoptOptions.Kind, with its version")
	}
	k.gvk.Kind = f.of.String()
	example, err := exampleOf(f.of)
	if err != nil {
		return k, err
	}
	known := scheme.Scheme
	if c.backend != nil {
		known = c.backend.Scheme()
	}
	kinds, _, err := known.ObjectKinds(example)
	if err != nil {
		return k, fmt.Errorf("the scheme does not know the type; give cache.AdoptOptions.Kind, or add its package with AddToScheme: %w", err)
	}
	k.gvk = kinds[0]
	return k, nil
}

// existing returns the key under which the informer of a key is in the cache already, else the key
// itself. client-go wraps one informer to give it types, so the store tells.
func (c *Cache) existing(k key) key {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, i := range c.informers {
		if other.gvk == k.gvk && i.shared.GetIndexer() == k.foreign.shared.GetIndexer() {
			return other
		}
	}
	return k
}

// addIndexers adds the indexes that every informer has here, where they are missing.
func (f *foreign) addIndexers() {
	missing := builtInIndexers()
	for name := range f.shared.GetIndexer().GetIndexers() {
		delete(missing, name)
	}
	_ = f.shared.AddIndexers(missing) // it fails if it has stopped, or another cache has just added them
}

// newForeign makes a record of an informer that was not made here.
func (e *environment) newForeign(k key) *informer {
	i := &informer{key: k, env: e, shared: k.foreign.shared, foreign: !k.foreign.ours, stopped: make(chan struct{}), phase: hook.NotStarted, since: time.Now()}
	kind := k.gvk
	if kind.Version == "" && k.foreign.of.Kind() == reflect.Pointer { // only the type says something
		kind.Kind = k.foreign.of.Elem().Name()
	}
	i.copyOf(kind)
	i.copy.Foreign, i.copy.Asked = true, e.backend != nil
	i.follow = i.run
	if i.foreign {
		i.follow, i.phase = i.attend, hook.Synced // when it is; see at
	}
	return i
}

// attend learns of an adopted informer what it does not say itself, until ctx is done.
func (i *informer) attend(ctx context.Context) {
	var learning sync.WaitGroup
	learning.Go(func() { i.learnMapping(ctx) })
	select {
	case <-i.synced():
		if err := i.key.foreign.misfit(); err != nil {
			i.report(hook.Failing, err)
		}
		i.env.ring()
		i.copy.Look()
		<-ctx.Done()
	case <-ctx.Done():
	}
	learning.Wait()
	i.copy.End(true)
}

// learnMapping asks how the kind is served, until there is an answer.
func (i *informer) learnMapping(ctx context.Context) {
	if i.env.backend == nil {
		return
	}
	m := i.key.target(i.env.backend).AwaitMapping(ctx)
	if m == nil {
		return
	}
	if given := i.copy.Mapping.Load(); given != nil { // its resource is a guess, its scope is not
		m = &meta.RESTMapping{Resource: m.Resource, GroupVersionKind: m.GroupVersionKind, Scope: given.Scope}
	}
	i.copy.Mapping.Store(m)
	i.env.ring()
}
