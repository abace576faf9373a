// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/coalesce"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// Subscription is an event handler on every informer of a handle's scope.
type Subscription struct {
	group   *group
	handler toolscache.ResourceEventHandler

	retiring sync.WaitGroup // running calls of retire

	// The group's mutex guards the fields below and retiring.Add.
	registrations map[*informer]*registration
	leaving       map[*informer]bool
	closed        bool
}

// Subscribe calls handler for each object of the scope, and for each change from now on. Objects
// that enter the scope are adds. Objects that leave it, for example because a namespace was
// removed, are deletes. The handler must not change the objects. While it is busy, events of an
// object may be merged; see "Event handlers". Each informer calls it from a goroutine of its own,
// and each informer that leaves the scope from one more. As in client-go, a panic on an informer's
// goroutine ends the process.
//
// Subscribe may be called before the cache runs. The subscription keeps the informers alive until
// Close, even after the handle's Release.
func (h *Handle[T]) Subscribe(handler toolscache.ResourceEventHandler) (*Subscription, error) {
	if _, ok := handler.(storage.Handler); !ok && handler != nil && h.handle.group != nil && h.handle.group.key.records() {
		handler = goHandler{handler}
	}
	return h.handle.subscribe(handler)
}

func (h *handle) subscribe(handler toolscache.ResourceEventHandler) (*Subscription, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, fmt.Errorf("subscribe to %s: the handler is nil", h)
	}
	s := &Subscription{group: h.group, handler: handler, registrations: map[*informer]*registration{}, leaving: map[*informer]bool{}}
	if !h.group.hold() {
		return nil, h.usable() // released in the meantime
	}
	if err := h.group.subscribe(s); err != nil {
		h.group.letGo()
		return nil, err
	}
	return s, nil
}

func (g *group) subscribe(s *Subscription) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.members.Load().by {
		if err := s.joinLocked(i); err != nil {
			for i, r := range s.registrations {
				// It fails only if the informer has stopped.
				_ = i.shared.RemoveEventHandler(r.ResourceEventHandlerRegistration)
			}
			return err
		}
	}
	g.listeners[s] = struct{}{}
	return nil
}

// joinLocked registers the handler with an informer. If that is still leaving, retire does so
// later.
func (s *Subscription) joinLocked(i *informer) error {
	if s.leaving[i] {
		return nil
	}
	r := &registration{of: s, informer: i, seen: map[types.NamespacedName]Object{}, marks: map[string]bool{}}
	r.keeps.Store(s.group.scope.changes())
	if i.key.slots != nil {
		defer i.lw.Progress.Again() // it may miss a mark before this returns
	}
	handle, err := i.shared.AddEventHandlerWithOptions(r, toolscache.HandlerOptions{})
	if err != nil {
		return err
	}
	r.ResourceEventHandlerRegistration = handle
	s.registrations[i] = r
	return nil
}

func (s *Subscription) leaveLocked(i *informer) (retire func()) {
	r := s.registrations[i]
	if r == nil {
		return nil
	}
	delete(s.registrations, i)
	s.leaving[i] = true
	s.retiring.Add(1)
	return func() { s.retire(i, r) }
}

// retire calls the handler with a delete for each object of an informer that left the scope. If the
// informer has come back, retire registers the handler again.
func (s *Subscription) retire(i *informer, r *registration) {
	defer s.retiring.Done()
	// It fails only if the informer has stopped.
	_ = toolscache.ShutDownEventHandler(i.shared, r.ResourceEventHandlerRegistration)
	for name, obj := range r.handled() {
		if s.isClosed() {
			break
		}
		stored, _, _ := i.Store().GetByKey(object.Name(name))
		if newer, ok := stored.(Object); ok && newer.GetUID() == obj.GetUID() {
			obj = newer
		}
		s.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: object.Name(name), Obj: obj})
	}
	s.retired(i)
	s.group.cache.ring()
}

func (s *Subscription) retired(i *informer) {
	g := s.group
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(s.leaving, i)
	if !s.closed && g.has(i) {
		_ = s.joinLocked(i) // fails only if it has stopped
	}
}

// WaitForSync returns nil when the handler has seen all objects of the initial lists, of the
// informers that the scope has at the call. If one of these leaves the scope, it waits for all that
// the scope has then. It returns an error when ctx ends or the cache stops.
func (s *Subscription) WaitForSync(ctx context.Context) error {
	for left := true; left; {
		left = false
		for i, r := range s.now() {
			if err := s.await(ctx, i, r); err != nil {
				return err
			}
			left = left || s.at(i) != r
		}
	}
	return nil
}

func (s *Subscription) await(ctx context.Context, i *informer, r *registration) error {
	for {
		changed := s.group.cache.changed()
		if s.at(i) != r {
			return nil // the informer has left the scope
		}
		synced := r.HasSyncedChecker().Done()
		if !r.hasSlots() {
			synced = nil
		}
		select {
		case <-synced:
			return nil
		case <-changed:
			continue
		case <-i.stopped:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if s.at(i) == r {
			return errors.New("not synced, and never will be: " + i.state().String())
		}
	}
}

func (s *Subscription) now() map[*informer]*registration {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return maps.Clone(s.registrations)
}

func (s *Subscription) at(i *informer) *registration {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return s.registrations[i]
}

func (s *Subscription) leavingOne() *informer {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	for i := range s.leaving {
		return i
	}
	return nil
}

func (s *Subscription) isClosed() bool {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return s.closed
}

// Close ends the subscription and releases its informers. It waits for running callbacks, so do not
// call it from one. A second call does nothing.
func (s *Subscription) Close() {
	if !s.end() {
		return
	}
	for i, r := range s.now() {
		// It fails only if the informer has stopped.
		_ = toolscache.ShutDownEventHandler(i.shared, r.ResourceEventHandlerRegistration)
	}
	s.retiring.Wait()
	s.group.letGo()
}

func (s *Subscription) end() (first bool) {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	delete(s.group.listeners, s)
	first = !s.closed
	s.closed = true
	return first
}

// Waiting returns the number of events for which the handler has not been called yet: at most one
// for each object if the handler is in one call for a second or more.
func (s *Subscription) Waiting() (events int) {
	for _, r := range s.now() {
		if l, ok := r.ResourceEventHandlerRegistration.(*coalesce.Registration); ok {
			events += l.Waiting()
		}
	}
	return events
}
