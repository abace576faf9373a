// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// firstRetry is the first backoff of a failed event. It doubles up to a minute.
const firstRetry = 100 * time.Millisecond

// retries keeps each object's events in order, and retries failed ones with backoff. It merges
// events that come while an earlier one is being tried, or waits. So the handler never sees an
// earlier change after a later one.
type retries struct {
	tryOne  func(ctx context.Context, e change) error
	objects *workqueue.Queue[types.NamespacedName] // that may have a pending event

	mu      *sync.Mutex // the source's; guards the fields below
	pending map[types.NamespacedName]pendingEvent
	trying  map[types.NamespacedName]struct{} // not in pending
	failure error                             // of the last failed try
	calm    run.Barrier                       // when both maps are empty
}

func newOrder[T comparable](name string) *workqueue.Queue[T] {
	q, _ := workqueue.New(workqueue.Options[T]{ // cannot fail: the options are valid
		Name: name, Backoff: workqueue.Exponential{Base: firstRetry, Max: time.Minute}, Reasons: -1,
	})
	return q
}

// handleAll handles keys until ctx ends, and retries those that fail.
func handleAll[T comparable](ctx context.Context, q *workqueue.Queue[T], handle func(key T) error) {
	for {
		item, ok := q.Get(ctx)
		if !ok {
			return
		}
		if err := handle(item.Key()); err != nil {
			_, _ = item.Retry(err) // cannot fail: settled once, here
			continue
		}
		_ = item.Done()
	}
}

// deliver tries an event now, merged with the object's pending one, or later if that fails. For a
// resync, latest returns the object's current state, or nil if it is gone: the store has each
// change before its event comes here. It is called under the lock and must not wait.
func (r *retries) deliver(ctx context.Context, e pendingEvent, latest func() handler.Object) {
	if u, ok := r.begin(e, latest); ok && r.tryAll(ctx, u) != nil {
		r.objects.AddWith(e.Key(), workqueue.AddOptions{After: firstRetry})
	}
}

// retry tries an object's pending event, unless it was delivered meanwhile, or another goroutine is
// trying one.
func (r *retries) retry(ctx context.Context, key types.NamespacedName) error {
	r.mu.Lock()
	u, ok := r.takeLocked(key)
	r.mu.Unlock()
	if !ok {
		return nil
	}
	return r.tryAll(ctx, u)
}

// tryAll tries an event, and then each event of the same object that came meanwhile, until one
// fails.
func (r *retries) tryAll(ctx context.Context, u pendingEvent) error {
	for {
		rest, err := r.try(ctx, u)
		next, more := r.end(rest, err)
		if !more {
			return err
		}
		r.objects.Forget(rest.Key()) // the failures before it
		u = next
	}
}

// begin returns the event to try, or false if the goroutine that tries an earlier one delivers it.
func (r *retries) begin(e pendingEvent, latest func() handler.Object) (pendingEvent, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if latest != nil {
		o := latest()
		if o == nil {
			return pendingEvent{}, false
		}
		e.Old, e.New = o, o
	}
	key := e.Key()
	if earlier, ok := r.pending[key]; ok {
		e = merge(earlier, e)
	}
	r.pending[key] = e
	return r.takeLocked(key)
}

func (r *retries) takeLocked(key types.NamespacedName) (pendingEvent, bool) {
	u, ok := r.pending[key]
	if _, busy := r.trying[key]; busy || !ok {
		return pendingEvent{}, false
	}
	delete(r.pending, key)
	r.trying[key] = struct{}{}
	return u, true
}

// end records the result of a try. Unless it failed, it returns the event to try next, if any.
func (r *retries) end(rest pendingEvent, failure error) (next pendingEvent, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := rest.Key()
	delete(r.trying, key)
	if failure != nil {
		r.failure = failure
		if later, ok := r.pending[key]; ok {
			rest = merge(rest, later)
		}
		r.pending[key] = rest
		return rest, false
	}
	next, more = r.takeLocked(key)
	if r.calmLocked() {
		r.calm.Open()
	}
	return next, more
}

func (r *retries) calmLocked() bool { return len(r.pending) == 0 && len(r.trying) == 0 }

func (r *retries) whenCalm() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calm.When(r.calmLocked())
}

// try delivers, or returns an error and what remains to be delivered.
func (r *retries) try(ctx context.Context, u pendingEvent) (rest pendingEvent, err error) {
	events, n := u.events()
	for i, e := range events[:n] {
		if err := r.tryOne(ctx, change{e, u.keepOf(e), u.several && (n == 1 || e.Op != handler.Delete)}); err != nil {
			if i > 0 {
				u = u.after(e) // the one before it is done
			}
			return u, err
		}
	}
	return u, nil
}

func (r *retries) run(ctx context.Context) {
	defer r.objects.ShutDown()
	handleAll(ctx, r.objects, func(key types.NamespacedName) error { return r.retry(ctx, key) })
}

func (r *retries) state() (pending, retrying int, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pending, retrying = len(r.pending)+len(r.trying), len(r.pending)
	if retrying > 0 {
		failure = r.failure
	}
	return pending, retrying, failure
}

// failing returns the last failure, and when the event of an object is retried, if it waits for
// that.
func (r *retries) failing(key types.NamespacedName) (again time.Time, failure error) {
	waits, _ := r.objects.Lookup(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.pending[key]; ok {
		failure = r.failure
	}
	return waits.Due, failure
}

// pendingEvent is an object's change that the handler has not mapped, from the oldest Old to the
// newest New.
type pendingEvent struct {
	handler.Event
	// last is the last known state of a delete, if not Old.
	last handler.Object
	// replay requests New as a Create, too, for the keys that it keeps. It is nil without a replay.
	replay keep
	// several reports that the object changed more than once.
	several bool
}

// change is an event for the handler.
type change struct {
	handler.Event

	wanted  keep // nil: all keys
	several bool // New is the result of more than one change
}

// keep reports whether a replay is for a key, which has the source's type of keys.
type keep func(key any) bool

func keepAll(any) bool { return true }

func keepEither(a, b keep) keep {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(key any) bool { return a(key) || b(key) }
}

// keepOf returns which keys of an event of u are wanted, or nil for all.
func (u pendingEvent) keepOf(e handler.Event) keep {
	if u.Op == handler.Update && e.Initial {
		return u.replay
	}
	return nil
}

func merge(earlier, later pendingEvent) pendingEvent {
	replay := keepEither(earlier.replay, later.replay)
	earlier.replay, later.replay = replay, replay
	switch { // a resync adds nothing to the other event
	case earlier.Old == earlier.New:
		return later
	case later.Old == later.New:
		return earlier
	}
	e := pendingEvent{Event: handler.Event{Old: earlier.Old, New: later.New, Initial: earlier.Initial && later.Initial}, replay: replay, several: true}
	gone := cmp.Or(later.last, later.Old)
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
func (u pendingEvent) events() (events [2]handler.Event, n int) {
	switch {
	case u.Op == handler.Update && u.Old.GetUID() != u.New.GetUID(): // S3
		return [2]handler.Event{{Op: handler.Delete, Old: u.Old, Stale: true}, {Op: handler.Create, New: u.New}}, 2
	case u.Op == handler.Delete && u.last != nil && u.Old.GetUID() != u.last.GetUID(): // S3
		return [2]handler.Event{{Op: handler.Delete, Old: u.Old, Stale: true}, {Op: handler.Delete, Old: u.last, Stale: u.Stale}}, 2
	case u.Op == handler.Delete && u.last != nil:
		return [2]handler.Event{{Op: handler.Update, Old: u.Old, New: u.last}, {Op: handler.Delete, Old: u.last, Stale: u.Stale}}, 2
	case u.Op == handler.Update && u.replay != nil && u.Old == u.New:
		return [2]handler.Event{created(u.New)}, 1
	case u.Op == handler.Update && u.replay != nil:
		return [2]handler.Event{u.Event, created(u.New)}, 2
	default:
		return [2]handler.Event{u.Event}, 1
	}
}

func created(o handler.Object) handler.Event {
	return handler.Event{Op: handler.Create, New: o, Initial: true}
}

// after returns what remains after the first event, if the second one is e.
func (u pendingEvent) after(e handler.Event) pendingEvent {
	if u.replay != nil && e.Initial {
		return pendingEvent{Event: handler.Event{Op: handler.Update, Old: e.New, New: e.New}, replay: u.replay}
	}
	return pendingEvent{Event: e, several: u.several && e.Op != handler.Delete}
}
