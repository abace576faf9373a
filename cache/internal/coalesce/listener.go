// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package coalesce bounds the events that wait for a client-go event handler. client-go keeps every
// event until the handler has taken it, without a limit.
//
// A [Listener] is registered in the handler's place. It takes each event at once and calls the
// handler on a goroutine of its own. If the handler is in one call for a second or more, or an
// object has many waiting events, it merges the events of an object:
//
//   - Updates become one, from the oldest old state to the newest new one. An add stays an add.
//   - A delete stays visible, and so does an add after it. Of several objects of one name, the
//     handler sees the first one that it knows go, and the last one come and perhaps go.
//   - A resync adds nothing to another event.
//
// A handler that keeps up sees each event, as with client-go. The events of one object come in
// order. The first one that waits determines the place of a merged event among the others.
package coalesce

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// Merged is an optional interface of an event handler that needs to know whether an event stands
// for several changes. It is called in place of OnAdd or OnUpdate for such an event. before is nil
// for an add.
type Merged interface {
	OnMerged(before, after any, initial bool)
}

// Marked is an optional interface of an event handler that gets the marks among an informer's
// events.
type Marked interface {
	OnMark(name string)
}

const (
	// blockedAfter is how long a call of the handler may take before the waiting events are merged.
	blockedAfter = time.Second
	// fewEvents of one object may wait before they are merged. A handler is briefly behind whenever
	// events come at once, and a merged event cannot count as the key's own write.
	fewEvents = 8
)

// Listener is an event handler that calls another one. It is safe for concurrent use.
type Listener struct {
	handler toolscache.ResourceEventHandler
	done    chan struct{} // closed when it is closed and no call is in progress
	synced  chan struct{} // closed by flush

	calls sync.WaitGroup // the goroutines

	mu         sync.Mutex // guards the fields below and calls.Go
	queue      list.List  // of *waiting, in the order of their arrival
	objects    map[types.NamespacedName]*object
	most       int       // the most entries of objects since it was made
	current    *waiting  // rest of what is being delivered, or nil
	began      time.Time // the call in progress, or zero
	running    bool      // a goroutine delivers
	goroutines int
	closed     bool
	closing    chan struct{} // closed with it
	flushed    bool          // flush was called
	following  bool          // follow was called
}

// NewListener returns a Listener for a handler.
func NewListener(handler toolscache.ResourceEventHandler) *Listener {
	return &Listener{handler: handler, done: make(chan struct{}), synced: make(chan struct{}), closing: make(chan struct{})}
}

// OnAdd implements cache.ResourceEventHandler.
func (l *Listener) OnAdd(obj any, initial bool) {
	l.put(obj, &waiting{after: obj, initial: initial})
}

// OnUpdate implements cache.ResourceEventHandler.
func (l *Listener) OnUpdate(before, after any) {
	l.put(after, &waiting{before: before, after: after})
}

// OnDelete implements cache.ResourceEventHandler.
func (l *Listener) OnDelete(obj any) { l.put(obj, &waiting{last: obj}) }

// OnMark passes a mark to a Marked handler when the handler has returned from all events that have
// arrived before, unless the Listener is closed by then.
func (l *Listener) OnMark(name string) {
	m, ok := l.handler.(Marked)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendLocked(&waiting{do: func() { m.OnMark(name) }})
}

// Waiting returns the number of events that the handler has not been called with.
func (l *Listener) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, blocked := 0, l.blockedLocked()
	for _, o := range l.objects {
		if blocked {
			o.merge(&l.queue)
		}
		events += len(o.events)
	}
	return events
}

// Close drops the events that wait. It does not wait for a call in progress; see Done.
func (l *Listener) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.queue.Init()
	l.objects = nil
	close(l.closing)
	l.doneLocked()
}

// Done returns a channel that is closed when the Listener is closed and no call is in progress.
func (l *Listener) Done() <-chan struct{} { return l.done }

func (l *Listener) doneLocked() {
	if l.closed && l.goroutines == 0 {
		close(l.done)
	}
}

func (l *Listener) put(obj any, w *waiting) {
	key, known := keyOf(obj)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.appendLocked(w)
	if !known {
		return
	}
	o := l.objects[key]
	if o == nil {
		if l.objects == nil {
			l.objects = map[types.NamespacedName]*object{}
		}
		o = &object{key: key}
		l.objects[key] = o
		l.most = max(l.most, len(l.objects))
	}
	w.object, o.events = o, append(o.events, w)
	if n := len(o.events); n > fewEvents || n > 1 && l.blockedLocked() {
		o.merge(&l.queue)
	}
}

// blockedLocked reports whether the handler is in a long call.
func (l *Listener) blockedLocked() bool {
	return !l.began.IsZero() && time.Since(l.began) >= blockedAfter
}

func (l *Listener) appendLocked(w *waiting) {
	if l.closed {
		return
	}
	w.place = l.queue.PushBack(w)
	if !l.running {
		l.running = true
		l.goLocked(l.deliver)
	}
}

func (l *Listener) goLocked(f func()) {
	l.goroutines++
	l.calls.Go(func() {
		defer l.ended()
		f()
	})
}

func (l *Listener) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goroutines--
	l.doneLocked()
}

func (l *Listener) deliver() {
	defer l.goOn()
	for l.one() {
	}
}

// goOn continues after a handler that has ended its goroutine.
func (l *Listener) goOn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		l.goLocked(l.deliver)
	}
}

// one makes the next call. As in client-go, a panic ends the process by default.
func (l *Listener) one() (more bool) {
	call, more := l.take()
	if !more {
		return false
	}
	defer utilruntime.HandleCrash()
	call.to(l.handler)
	return true
}

func (l *Listener) take() (c call, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Time{}
	for {
		switch {
		case l.closed:
			l.running, l.current = false, nil
			return call{}, false
		case l.current != nil:
			if c, more = l.current.take(); more {
				l.began = time.Now()
				return c, true
			}
			l.current = nil
		case l.queue.Len() > 0:
			l.popLocked()
		default:
			l.running = false
			return call{}, false
		}
	}
}

// many is the number of entries above which an empty map is replaced, to free its memory.
const many = 128

func (l *Listener) popLocked() {
	w := l.queue.Remove(l.queue.Front()).(*waiting) //nolint:forcetypeassert // queue has no other types
	l.current = w
	if o := w.object; o != nil {
		if o.events = slices.Delete(o.events, 0, 1); len(o.events) == 0 {
			delete(l.objects, o.key)
		}
	}
	if len(l.objects) == 0 && l.most > many {
		l.objects, l.most = nil, 0
	}
}

// flush closes synced after all events that have arrived, at its first call.
func (l *Listener) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.flushed || l.closed:
	case !l.running:
		close(l.synced)
	default:
		l.appendLocked(&waiting{do: func() { close(l.synced) }})
	}
	l.flushed = true
}

// follow calls flush when arrived is closed, unless the Listener is closed before.
func (l *Listener) follow(arrived <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.following || l.closed {
		return
	}
	l.following = true
	l.goLocked(func() {
		select {
		case <-arrived:
			l.flush()
		case <-l.closing:
		}
	})
}
