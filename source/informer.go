// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/coalesce"
)

// EventSource is an informer that the host program runs, of client-go or another framework.
type EventSource interface {
	AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error
	HasSyncedChecker() toolscache.DoneChecker
}

// Informer is Kind for an informer of the host program with objects of type T:
//
//	source.Informer[*corev1.Pod](factory.Core().V1().Pods().Informer(), handler.Self())
//
// Run the informer yourself. It does not report why it is not synced, and workers wait until it is.
// If it has a method IsStopped, as client-go's have, State reports that it has stopped. Objects of
// other types are dropped. Another event source than a client-go SharedIndexInformer calls the
// handler directly, and decides what it keeps while the handler is blocked.
//
// A key waits until a client-go SharedIndexInformer shows the key's writes, as with a handle.
// Package cache describes which writes belong to an informer. Keys do not wait for other event
// sources, which have no store.
func Informer[T handler.Object, K comparable](informer EventSource, h handler.Handler[K], predicates ...handler.Predicate) Source[K] {
	i := &informerSource[K]{informer: informer, feed: newFeed[T]("Informer("+reflect.TypeFor[T]().String()+")", h, predicates)}
	if shared, ok := informer.(toolscache.SharedIndexInformer); ok {
		watched := cache.Adopt[T](nil, shared, cache.AdoptOptions{})
		i.watched, i.unwatch, i.all = watched, watched.Release, listOf(watched)
	}
	i.state = i.State
	return i
}

type informerSource[K comparable] struct {
	*feed[K]

	informer EventSource
	watched  cache.Declared // a handle; nil unless the informer is client-go's
	unwatch  func()         // releases it
	all      list           // of its objects
}

func (i *informerSource[K]) Handle() cache.Declared { return i.watched }

func (i *informerSource[K]) release() {
	if i.watched != nil {
		i.unwatch()
	}
}

func (i *informerSource[K]) Validate() error {
	if argument.IsNil(i.informer) || i.handler == nil {
		return errors.New("source.Informer: give an informer and a handler")
	}
	return i.validate()
}

func (i *informerSource[K]) Run(ctx context.Context, q Queue[K], h *hook.Source) error {
	if i.watched == nil {
		return i.run(ctx, q, h, i.subscribe, nil)
	}
	return i.run(ctx, q, h, i.subscribe, func(ctx context.Context) { i.redeliver(ctx, i.all, 0) })
}

func (i *informerSource[K]) subscribe(events toolscache.ResourceEventHandler) (subscription, error) {
	g := &gate{handler: events, mu: &i.mu}
	if i.watched == nil { // it may have no events in store, so it is called directly
		r, err := i.informer.AddEventHandlerWithOptions(g, toolscache.HandlerOptions{})
		if err != nil {
			return nil, err
		}
		return &registration{i.informer, r, g, i.release}, nil
	}
	r, err := coalesce.Register(i.informer, g, toolscache.HandlerOptions{})
	if err != nil {
		return nil, err
	}
	return &bounded{registration{i.informer, r.Handle, g, i.release}, r}, nil
}

func (i *informerSource[K]) Stale() error {
	if i.stopped() {
		return errors.New("the informer has stopped")
	}
	return i.feed.Stale()
}

func (i *informerSource[K]) stopped() bool {
	s, ok := i.informer.(interface{ IsStopped() bool })
	return ok && s.IsStopped()
}

func (i *informerSource[K]) State() State {
	s := State{Source: i.name, Phase: i.phase()}
	switch {
	case i.stopped():
		s.Phase = hook.Stopped
	case s.Phase == hook.Synced:
		s.Note = "an informer does not report whether it still follows the API server"
	case s.Phase == hook.Syncing:
		s.Note = "an informer does not report why it is not synced"
	}
	return i.count(s)
}

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

func (r *registration) CatchUp(context.Context) error {
	return errors.New("an informer cannot be compared with what the API server has; give it to cache.Adopt, and the handle to source.Kind")
}

func (r *registration) Close() {
	_ = r.informer.RemoveEventHandler(r.handle) // fails only for a stopped informer
	r.gate.close()
	if s, ok := r.handle.(interface{ ShutdownChan() <-chan struct{} }); ok {
		<-s.ShutdownChan() // its goroutines have returned
	}
	r.release()
}

func (r *registration) Waiting() int { return 0 }

// bounded is the registration of an informer that would keep events without a limit.
type bounded struct {
	registration
	events *coalesce.Registration
}

func (b *bounded) WaitForSync(ctx context.Context) error {
	select {
	case <-b.events.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *bounded) Waiting() int { return b.events.Waiting() }

func (b *bounded) Close() {
	b.events.Close()
	<-b.events.Done()
	b.registration.Close()
}

type gate struct {
	handler toolscache.ResourceEventHandler
	calls   sync.WaitGroup

	mu   *sync.Mutex // the source's; guards shut, and the Add of calls
	shut bool
}

func (g *gate) pass(f func()) {
	g.mu.Lock()
	shut := g.shut
	if !shut {
		g.calls.Add(1)
	}
	g.mu.Unlock()
	if !shut {
		defer g.calls.Done()
		f()
	}
}

func (g *gate) close() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.calls.Wait()
}

func (g *gate) OnAdd(obj any, initial bool) {
	g.pass(func() { g.handler.OnAdd(obj, initial) })
}

func (g *gate) OnUpdate(before, after any) {
	g.pass(func() { g.handler.OnUpdate(before, after) })
}

// OnMerged implements coalesce.Merged.
func (g *gate) OnMerged(before, after any, initial bool) {
	g.pass(func() {
		if m, ok := g.handler.(coalesce.Merged); ok {
			m.OnMerged(before, after, initial)
		}
	})
}

func (g *gate) OnDelete(obj any) {
	g.pass(func() { g.handler.OnDelete(obj) })
}

func (i *informerSource[K]) Replay(ctx context.Context) error { return i.replayTo(ctx, keepAll) }

// ReplayKeys is Replay for the keys that wanted accepts. A controller calls it.
func (i *informerSource[K]) ReplayKeys(ctx context.Context, wanted func(K) bool) error {
	return i.replayTo(ctx, keepOnly(wanted))
}

func (i *informerSource[K]) replayTo(ctx context.Context, wanted keep) error {
	if i.watched == nil {
		return fmt.Errorf("%s cannot list its objects; use a client-go SharedIndexInformer or source.Kind", i)
	}
	return i.replay(ctx, i.Settled, wanted)
}
