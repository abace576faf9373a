// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
)

// Subscription is an event handler on every informer of a handle's scope. Handle.Subscribe makes one.
type Subscription struct {
	group   *group
	handler toolscache.ResourceEventHandler

	mu            sync.Mutex // guards what follows
	registrations map[*informer]toolscache.ResourceEventHandlerRegistration
	closed        bool
	failed        error // why a registration failed
}

// Subscribe has handler called for each object of the scope, and for each change from now on. Objects that enter the scope are
// adds; those that leave it, because a namespace was taken out of it for example, are deletes. The handler must not change the
// objects. It is called from one goroutine per informer, and one more for what leaves. A panic of it on an informer's goroutine
// ends the process, as with client-go. The subscription keeps the informers alive, even after the handle's Release, and must be
// closed. It may be made before the cache runs.
func (h *Handle[T]) Subscribe(handler toolscache.ResourceEventHandler) (*Subscription, error) {
	if h.err != nil {
		return nil, h.err
	}
	if err := h.usable(); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, fmt.Errorf("subscribe to %s: the handler is nil", h)
	}
	s := &Subscription{group: h.group, handler: handler, registrations: map[*informer]toolscache.ResourceEventHandlerRegistration{}}
	if !h.group.hold() {
		return nil, h.usable() // it has just been released
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
		s.join(i)
	}
	if err := s.failure(); err != nil {
		for _, i := range g.members.Load().by {
			if r := s.leave(i); r != nil {
				_ = i.shared.RemoveEventHandler(r) // it has stopped, or nobody waits for it
			}
		}
		return err
	}
	g.subscriptions[s] = struct{}{}
	return nil
}

// join registers the handler with an informer. The group's mutex is held: nothing here calls the handler.
func (s *Subscription) join(i *informer) {
	r, err := i.shared.AddEventHandlerWithOptions(s.handler, toolscache.HandlerOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = err
		return
	}
	s.registrations[i] = r
}

func (s *Subscription) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// leave forgets an informer and returns the registration with it.
func (s *Subscription) leave(i *informer) toolscache.ResourceEventHandlerRegistration {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.registrations[i]
	delete(s.registrations, i)
	return r
}

// WaitForSync returns nil when the handler has seen every object of the initial lists of the informers that there were at the
// call, and have not left the scope since. It returns an error when ctx ends or the cache stops.
func (s *Subscription) WaitForSync(ctx context.Context) error {
	for i, r := range s.now() {
		if err := s.await(ctx, i, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Subscription) await(ctx context.Context, i *informer, r toolscache.ResourceEventHandlerRegistration) error {
	for {
		changed := s.group.cache.Changed()
		if s.at(i) != r {
			return nil // it has left the scope
		}
		select {
		case <-r.HasSyncedChecker().Done():
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

func (s *Subscription) now() map[*informer]toolscache.ResourceEventHandlerRegistration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[*informer]toolscache.ResourceEventHandlerRegistration, len(s.registrations))
	for i, r := range s.registrations {
		now[i] = r
	}
	return now
}

func (s *Subscription) at(i *informer) toolscache.ResourceEventHandlerRegistration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registrations[i]
}

func (s *Subscription) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close ends the subscription and lets the informers go. It waits for a callback that is running, so it must not be called from
// one. Closing twice is the same as once.
func (s *Subscription) Close() {
	if !s.end() {
		return
	}
	for i, r := range s.now() {
		_ = toolscache.ShutDownEventHandler(i.shared, r) // fails only if the informer has stopped
	}
	s.group.letGo()
}

func (s *Subscription) end() (first bool) {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	delete(s.group.subscriptions, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	first = !s.closed
	s.closed = true
	return first
}
