// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// firstRetry is how long a failed event waits the first time.
const firstRetry = 100 * time.Millisecond

// retries tries failed events again, with backoff, at most one per object (S8).
type retries[K comparable] struct {
	delivery *delivery[K]
	objects  *workqueue.Queue[types.NamespacedName]

	mu      sync.Mutex // guards pending
	pending map[types.NamespacedName]handler.Event
}

func newRetries[K comparable](d *delivery[K]) (*retries[K], error) {
	objects, err := workqueue.New(workqueue.Options[types.NamespacedName]{
		Name:    d.source + " failed events",
		Backoff: workqueue.Exponential{Base: firstRetry, Max: time.Minute},
		Reasons: -1,
	})
	if err != nil {
		return nil, err
	}
	return &retries[K]{delivery: d, objects: objects, pending: map[types.NamespacedName]handler.Event{}}, nil
}

// add takes an event that failed.
func (r *retries[K]) add(e handler.Event) {
	r.keep(e)
	r.objects.AddWith(e.Key(), workqueue.How{After: firstRetry})
}

func (r *retries[K]) keep(e handler.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if earlier, ok := r.pending[e.Key()]; ok {
		e = merge(earlier, e)
	}
	r.pending[e.Key()] = e
}

func (r *retries[K]) take(key types.NamespacedName) (handler.Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.pending[key]
	delete(r.pending, key)
	return e, ok
}

// run tries until ctx is done.
func (r *retries[K]) run(ctx context.Context) {
	defer r.objects.ShutDown()
	for {
		item, ok := r.objects.Get(ctx)
		if !ok {
			return
		}
		if r.try(ctx, item.Key()) {
			_ = item.Done() // cannot fail: settled once, here
			continue
		}
		_, _ = item.Retry(errHandler)
	}
}

var errHandler = errors.New("the handler failed again")

// try delivers what is pending for an object, and reports whether that went well.
func (r *retries[K]) try(ctx context.Context, key types.NamespacedName) bool {
	e, ok := r.take(key)
	if !ok {
		return true
	}
	if e.Op == handler.Update && e.Old.GetUID() != e.New.GetUID() { // S3
		if !r.delivery.try(ctx, handler.Event{Op: handler.Delete, Old: e.Old, Stale: true}) {
			r.putBack(e)
			return false
		}
		e = handler.Event{Op: handler.Create, New: e.New}
	}
	if !r.delivery.try(ctx, e) {
		r.putBack(e)
		return false
	}
	return true
}

// putBack keeps an event that was taken. Another may have failed meanwhile, which is the later one.
func (r *retries[K]) putBack(e handler.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if later, ok := r.pending[e.Key()]; ok {
		e = merge(e, later)
	}
	r.pending[e.Key()] = e
}

func (r *retries[K]) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// merge makes one event of two about one object, of which nothing was delivered: from the oldest Old to the newest New.
func merge(earlier, later handler.Event) handler.Event {
	e := handler.Event{Old: earlier.Old, New: later.New, Initial: earlier.Initial && later.Initial}
	switch {
	case e.Old == nil && e.New == nil: // created and deleted in between: the last known state
		e.Op, e.Old, e.Stale = handler.Delete, later.Old, later.Stale
	case e.New == nil:
		e.Op, e.Stale = handler.Delete, earlier.Stale || later.Stale
	case e.Old == nil:
		e.Op = handler.Create
	default:
		e.Op = handler.Update
	}
	return e
}
