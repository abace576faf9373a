// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"reflect"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// EventSource is an informer that somebody else runs. Each of client-go's is one; those of other frameworks are, too.
type EventSource interface {
	AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error
	HasSyncedChecker() toolscache.DoneChecker
}

// Informer delivers the changes of an informer's objects, which are of type T, as Kind does for a handle:
//
//	source.Informer[*corev1.Pod](factory.Core().V1().Pods().Informer(), handler.Self())
//
// Whoever owns the informer runs it. An informer does not say why it is not synced, nor that it cannot watch any more: unlike a
// handle that is failing, one that never gets synced keeps the workers of its controller waiting. If it has a method IsStopped,
// as client-go's have, State says when it has stopped. What is not a T is dropped, and counted.
//
// What a Reconcile has written is waited for, as with a handle, if the informer is a client-go SharedIndexInformer: see
// cache.Adopt for which writes are taken to be of its objects. An EventSource of another type has no store to look into, so
// nothing is waited for.
func Informer[T handler.Object, K comparable](informer EventSource, h handler.Handler[K], filters ...handler.Filter) Source[K] {
	i := &informerSource[T, K]{informer: informer, feed: newFeed[T](h, filters)}
	if shared, ok := informer.(toolscache.SharedIndexInformer); ok {
		i.watched = cache.Adopt[T](nil, shared, cache.AdoptOptions{})
	}
	return i
}

type informerSource[T handler.Object, K comparable] struct {
	informer EventSource
	feed     *feed[K]
	watched  *cache.Handle[T] // nil of what is no informer of client-go's
}

// Handle returns what is watched, so that a controller waits until it shows what was written.
func (i *informerSource[T, K]) Handle() cache.Declared { return i.watched }

func (i *informerSource[T, K]) release() {
	if i.watched != nil {
		i.watched.Release()
	}
}

func (i *informerSource[T, K]) Validate() error {
	if argument.IsNil(i.informer) || i.feed.handler == nil {
		return errors.New("source.Informer: give an informer and a handler")
	}
	return i.feed.validate(i.String(), *new(T))
}

func (i *informerSource[T, K]) String() string {
	return "Informer(" + reflect.TypeFor[T]().String() + ")"
}

func (i *informerSource[T, K]) Run(ctx context.Context, q Queue[K], h *hook.Source) error {
	return i.feed.run(ctx, i.String(), q, h, i.subscribe, nil)
}

func (i *informerSource[T, K]) subscribe(events toolscache.ResourceEventHandler) (subscription, error) {
	g := &gate{handler: events}
	r, err := i.informer.AddEventHandlerWithOptions(g, toolscache.HandlerOptions{})
	if err != nil {
		return nil, err
	}
	return &registration{i.informer, r, g, i.release}, nil
}

func (i *informerSource[T, K]) WaitForSync(ctx context.Context) error {
	return wait(ctx, i.State, i.feed.synced)
}

func (i *informerSource[T, K]) Settled(ctx context.Context) error { return i.WaitForSync(ctx) }

func (i *informerSource[T, K]) Stale() error {
	if i.stopped() {
		return errors.New("the informer has stopped")
	}
	return i.feed.stale()
}

func (i *informerSource[T, K]) stopped() bool {
	s, ok := i.informer.(interface{ IsStopped() bool })
	return ok && s.IsStopped()
}

func (i *informerSource[T, K]) State() State {
	s := State{Source: i.String(), Phase: hook.NotStarted}
	switch {
	case run.Closed(i.feed.ended) || i.stopped():
		s.Phase = hook.Stopped
	case run.Closed(i.feed.synced):
		s.Phase, s.Note = hook.Synced, "an informer does not say whether it still follows the API server"
	case i.feed.ran.Load():
		s.Phase, s.Note = hook.Syncing, "an informer does not say why it is not synced"
	}
	return i.feed.count(s)
}

// registration is an event handler of an informer that may know nothing of client-go's ways to wait for the end of one.
type registration struct {
	informer EventSource
	handle   toolscache.ResourceEventHandlerRegistration
	gate     *gate
	release  func()
}

func (r *registration) WaitForSync(ctx context.Context) error {
	select {
	case <-r.handle.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *registration) Close() {
	_ = r.informer.RemoveEventHandler(r.handle) // fails for an informer that has stopped, if at all
	r.gate.close()
	if s, ok := r.handle.(interface{ ShutdownChan() <-chan struct{} }); ok {
		<-s.ShutdownChan() // its goroutines have returned
	}
	r.release()
}

// gate lets events pass until it is closed.
type gate struct {
	handler toolscache.ResourceEventHandler
	calls   sync.WaitGroup

	mu   sync.Mutex // guards shut, and the Add of calls
	shut bool
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.calls.Add(1)
	return true
}

// close waits for calls under way; there are none after that.
func (g *gate) close() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.calls.Wait()
}

func (g *gate) OnAdd(obj any, initial bool) {
	if g.enter() {
		defer g.calls.Done()
		g.handler.OnAdd(obj, initial)
	}
}

func (g *gate) OnUpdate(before, after any) {
	if g.enter() {
		defer g.calls.Done()
		g.handler.OnUpdate(before, after)
	}
}

func (g *gate) OnDelete(obj any) {
	if g.enter() {
		defer g.calls.Done()
		g.handler.OnDelete(obj)
	}
}
