// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"errors"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	theircache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/setpoint-dev/setpoint/cache"
)

// informer is controller-runtime's interface of a kind's events.
type informer struct{ kind kind }

var _ theircache.Informer = (*informer)(nil)

func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod ignores the period: the cache's options have one for each kind.
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	s, err := i.kind.subscribe(h)
	if err != nil {
		return nil, err
	}
	return newRegistration(i.kind.String(), s), nil
}

func (i *informer) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	own, ok := r.(*registration)
	if !ok {
		return errors.New("crbridge: the registration is not from this informer")
	}
	own.close()
	return nil
}

// AddIndexers is not supported: objects may be stored as bytes.
func (i *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("crbridge: informers take no indexers; use mgr.GetFieldIndexer().IndexField")
}

func (i *informer) HasSynced() bool { return i.kind.synced() }

func (i *informer) HasSyncedChecker() toolscache.DoneChecker {
	return newWaiter(i.kind.String(), i.kind.WaitForSync)
}

// IsStopped reports whether RemoveInformer has removed the informer.
func (i *informer) IsStopped() bool { return i.kind.released() }

// registration is an event handler of an informer.
type registration struct {
	*waiter

	subscription *cache.Subscription
}

func newRegistration(name string, s *cache.Subscription) *registration {
	return &registration{newWaiter(name, s.WaitForSync), s}
}

func (r *registration) HasSynced() bool { return toolscache.IsDone(r) }

func (r *registration) HasSyncedChecker() toolscache.DoneChecker { return r }

func (r *registration) close() {
	r.stop()
	r.subscription.Close()
}

// waiter is a DoneChecker of a function that waits.
type waiter struct {
	name string
	stop context.CancelFunc
	wait func()
	once sync.Once
	done chan struct{}
}

func newWaiter(name string, wait func(context.Context) error) *waiter {
	ctx, stop := context.WithCancel(context.Background())
	w := &waiter{name: name, stop: stop, done: make(chan struct{})}
	w.wait = func() {
		if wait(ctx) == nil {
			close(w.done)
		}
	}
	return w
}

func (w *waiter) Name() string { return w.name }

// Done starts to wait at its first call.
func (w *waiter) Done() <-chan struct{} {
	w.once.Do(func() { go w.wait() })
	return w.done
}
