// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/coalesce"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// pinned is an informer that the cache runs, and that stops only with it.
type pinned struct{ toolscache.SharedIndexInformer }

func (p pinned) Run(stop <-chan struct{}) { <-stop }

func (p pinned) RunWithContext(ctx context.Context) { <-ctx.Done() }

// resyncCheck is how often client-go checks which event handlers are due for a resync: its minimum.
// With 0, it would ignore their periods.
const resyncCheck = time.Second

// shared is an informer as the cache and its users see it:
//
//   - While an event handler is busy, the events of each object are merged.
//   - Event handlers are resynced only if they are added with a period; client-go would give the
//     others resyncCheck.
//   - Marks reach only the cache's own event handlers.
type shared struct {
	toolscache.SharedIndexInformer

	foreign bool // the host program runs it, and decides about resyncs

	mu       sync.Mutex // guards the fields below
	handlers map[*coalesce.Registration]struct{}
	stopped  bool
}

func (s *shared) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

func (s *shared) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

func (s *shared) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if options.ResyncPeriod == nil && !s.foreign {
		options.ResyncPeriod = new(time.Duration)
	}
	if a, ok := h.(arrivals); ok { // it is quick
		return s.SharedIndexInformer.AddEventHandlerWithOptions(unmarked{a, a}, options)
	}
	l := coalesce.NewListener(h)
	handle, err := s.SharedIndexInformer.AddEventHandlerWithOptions(unmarked{l, l}, options)
	if err != nil {
		return nil, err
	}
	r := &coalesce.Registration{Listener: l, Handle: handle}
	if !s.keep(r) {
		r.Close()
	}
	return r, nil
}

// keep returns false if the informer has stopped.
func (s *shared) keep(r *coalesce.Registration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handlers == nil {
		s.handlers = map[*coalesce.Registration]struct{}{}
	}
	s.handlers[r] = struct{}{}
	return !s.stopped
}

func (s *shared) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*coalesce.Registration)
	if !ok {
		return s.SharedIndexInformer.RemoveEventHandler(handle)
	}
	s.mu.Lock()
	delete(s.handlers, r)
	s.mu.Unlock()
	return r.Remove(s.SharedIndexInformer)
}

// join waits for running event handlers, once the informer has stopped. No others are called.
func (s *shared) join() {
	s.mu.Lock()
	s.stopped = true
	all := slices.Collect(maps.Keys(s.handlers))
	s.mu.Unlock()
	for _, r := range all {
		r.Close()
	}
	for _, r := range all {
		<-r.Done()
	}
}

func logUnlessStopped(ctx context.Context, r *toolscache.Reflector, err error) {
	if ctx.Err() == nil {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// markUID is the UID of a mark: the delete of an object that never existed. CatchUp sends marks
// through an informer, after the events of everything in the store.
const markUID = types.UID("setpoint.dev/mark")

func markOf(obj any) (name string, ok bool) {
	if o, is := obj.(Object); is && o.GetUID() == markUID {
		return o.GetName(), true
	}
	return "", false
}

// unmarked takes the marks out of an informer's events.
type unmarked struct {
	toolscache.ResourceEventHandler
	marks coalesce.Marked
}

func (u unmarked) OnDelete(obj any) {
	if mark, ok := markOf(obj); ok {
		u.marks.OnMark(mark)
	} else {
		u.ResourceEventHandler.OnDelete(obj)
	}
}

// mark returns a mark as the informer's objects are stored.
func (i *informer) mark(name string) Object {
	mark, _ := i.example.DeepCopyObject().(Object)
	mark.SetUID(markUID)
	mark.SetName(name)
	r, ok := i.lw.Codec().Example().(storage.Record)
	if !ok {
		return mark
	}
	r, _ = r.With(mark) // an empty object of an API type can be encoded
	return r
}
