// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// firstRetry is how long a failed event waits the first time.
const firstRetry = 100 * time.Millisecond

// retries keeps the events of one object in order, and tries failed ones again, with backoff (S8).
// While an event of an object is being tried, or waits to be, it merges later ones with that: the
// handler never sees an earlier change after a later one.
type retries struct {
	tryOne  func(ctx context.Context, e handler.Event) error
	objects *workqueue.Queue[types.NamespacedName] // those that may have something pending

	mu      sync.Mutex // guards what follows
	pending map[types.NamespacedName]unseen
	trying  map[types.NamespacedName]struct{} // what is tried is not in pending
	failure error                             // the last one
	calm    run.Barrier                       // until there is neither
}

func newRetries(try func(context.Context, handler.Event) error) *retries {
	return &retries{
		tryOne: try, objects: newOrder[types.NamespacedName]("failed events"),
		pending: map[types.NamespacedName]unseen{}, trying: map[types.NamespacedName]struct{}{},
	}
}

// newOrder returns a queue of what is tried again with backoff.
func newOrder[T comparable](name string) *workqueue.Queue[T] {
	q, _ := workqueue.New(workqueue.Options[T]{ // cannot fail: the options are valid
		Name: name, Backoff: workqueue.Exponential{Base: firstRetry, Max: time.Minute}, Reasons: -1,
	})
	return q
}

// deliver takes an event to the queue, now, with what is pending of its object, or, if that fails,
// later. Of a resync, latest returns the object as it is when its turn has come, or nil if it is
// gone: the store has each change before its event comes here. latest is called under the lock and
// must not wait.
func (r *retries) deliver(ctx context.Context, e handler.Event, latest func() handler.Object) {
	u, ok := r.begin(e, latest)
	if !ok {
		return // the goroutine that tries an earlier one delivers it
	}
	switch rest, err := r.try(ctx, u); {
	case !r.end(rest, err):
	case err == nil:
		r.objects.Add(e.Key()) // what came meanwhile has not failed
	default:
		r.objects.AddWith(e.Key(), workqueue.AddOptions{After: firstRetry})
	}
}

// begin returns what is to be tried, or false if that has to wait for what is being tried.
func (r *retries) begin(e handler.Event, latest func() handler.Object) (unseen, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if latest != nil {
		o := latest()
		if o == nil {
			return unseen{}, false
		}
		e.Old, e.New = o, o
	}
	key, u := e.Key(), unseen{Event: e}
	if earlier, ok := r.pending[key]; ok {
		u = merge(earlier, u)
	}
	if _, ok := r.trying[key]; ok {
		r.pending[key] = u
		return unseen{}, false
	}
	delete(r.pending, key)
	r.trying[key] = struct{}{}
	return u, true
}

// take returns what is pending of an object, if anything is.
func (r *retries) take(key types.NamespacedName) (unseen, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, ok := r.pending[key]
	if _, busy := r.trying[key]; busy || !ok {
		return unseen{}, false
	}
	delete(r.pending, key)
	r.trying[key] = struct{}{}
	return u, true
}

// end notes how a try went. It reports whether anything is pending of its object now: what failed,
// and what came meanwhile.
func (r *retries) end(rest unseen, failure error) (pending bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := rest.Key()
	delete(r.trying, key)
	later, pending := r.pending[key]
	if failure != nil {
		r.failure = failure
		if pending {
			rest = merge(rest, later)
		}
		r.pending[key] = rest
	}
	if r.calmLocked() {
		r.calm.Open()
	}
	return pending || failure != nil
}

func (r *retries) calmLocked() bool { return len(r.pending) == 0 && len(r.trying) == 0 }

// whenCalm returns a channel that is closed once no event is pending or being tried.
func (r *retries) whenCalm() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calm.When(r.calmLocked())
}

// try delivers, or returns an error and what is left to deliver.
func (r *retries) try(ctx context.Context, u unseen) (rest unseen, err error) {
	events, n := u.events()
	for i, e := range events[:n] {
		if err := r.tryOne(ctx, e); err != nil {
			if i > 0 {
				u = unseen{Event: e} // the one before it is done
			}
			return u, err
		}
	}
	return u, nil
}

// run tries until ctx is done.
func (r *retries) run(ctx context.Context) {
	defer r.objects.ShutDown()
	for {
		item, ok := r.objects.Get(ctx)
		if !ok {
			return
		}
		u, ok := r.take(item.Key())
		if !ok { // it was delivered meanwhile, or another goroutine tries it
			_ = item.Done() // cannot fail: settled once, here
			continue
		}
		switch rest, err := r.try(ctx, u); {
		case !r.end(rest, err):
			_ = item.Done()
		case err == nil: // what came meanwhile has not failed
			_ = item.Done()
			r.objects.Add(item.Key())
		default:
			_, _ = item.Retry(err)
		}
	}
}

// state returns how many events are to be tried again, and the last failure, if any are.
func (r *retries) state() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return 0, nil // what came while another was being tried has not failed, but will be gone in a moment
	}
	return len(r.pending), r.failure
}

// unseen is what the handler has not mapped of one object: one event, from the oldest Old to the
// newest New.
type unseen struct {
	handler.Event
	// last is, of a delete, the last known state if that is not Old.
	last handler.Object
}

// merge makes one event of two successive ones about one object.
func merge(earlier, later unseen) unseen {
	switch { // a resync says nothing that the other one does not, and may have come late
	case earlier.Old == earlier.New:
		return later
	case later.Old == later.New:
		return earlier
	}
	e := unseen{Event: handler.Event{Old: earlier.Old, New: later.New, Initial: earlier.Initial && later.Initial}}
	gone := later.last
	if gone == nil {
		gone = later.Old
	}
	switch {
	case e.Old == nil && e.New == nil: // created and deleted in between: the last known state
		e.Op, e.Old, e.Stale = handler.Delete, gone, later.Stale
	case e.New == nil:
		e.Op, e.Stale = handler.Delete, earlier.Stale || later.Stale
		if gone != e.Old {
			e.last = gone
		}
	case e.Old == nil:
		e.Op = handler.Create
	default:
		e.Op = handler.Update
	}
	return e
}

// events returns the first n of two events to deliver: the handler has to map each state.
func (u unseen) events() (events [2]handler.Event, n int) {
	switch {
	case u.Op == handler.Update && u.Old.GetUID() != u.New.GetUID(): // S3
		return [2]handler.Event{{Op: handler.Delete, Old: u.Old, Stale: true}, {Op: handler.Create, New: u.New}}, 2
	case u.Op == handler.Delete && u.last != nil && u.Old.GetUID() != u.last.GetUID(): // S3
		return [2]handler.Event{{Op: handler.Delete, Old: u.Old, Stale: true}, {Op: handler.Delete, Old: u.last, Stale: u.Stale}}, 2
	case u.Op == handler.Delete && u.last != nil:
		return [2]handler.Event{{Op: handler.Update, Old: u.Old, New: u.last}, {Op: handler.Delete, Old: u.last, Stale: u.Stale}}, 2
	default:
		return [2]handler.Event{u.Event}, 1
	}
}
