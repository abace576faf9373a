// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
)

// waiter is one who waits for an informer to show something.
type waiter struct {
	version func() string // of the store
	write   *Write        // nil if only the informer's state matters
	open    func() bool   // reports whether there is still something to wait for
	f       func()
	place   int // in a byVersion, or -1
}

// waiters is who waits for an informer. It is an event handler of it from the first one on; an event costs next to nothing as
// long as there is nobody.
type waiters struct {
	n atomic.Int64 // how many there are; changed under the mutex

	registering sync.Mutex // held while the event handler is added or removed; guards what follows
	handle      toolscache.ResourceEventHandlerRegistration
	informer    toolscache.SharedIndexInformer // that has it
	ended       bool                           // there will be no events

	mu    sync.Mutex // guards what follows
	named map[types.NamespacedName]map[*waiter]struct{}
	ahead byVersion // those whose version the store has not reached
}

func (one *waiter) at() (name types.NamespacedName) {
	if one.write != nil {
		name = one.write.At()
	}
	return name
}

// listen makes it an event handler of the informer, and says whether there will be events.
func (w *waiters) listen(informer toolscache.SharedIndexInformer) bool {
	w.registering.Lock()
	defer w.registering.Unlock()
	if w.ended || w.handle != nil {
		return !w.ended
	}
	handle, err := informer.AddEventHandlerWithOptions(w, toolscache.HandlerOptions{ResyncPeriod: new(time.Duration)})
	if err != nil { // it has stopped
		w.ended = true
		return false
	}
	w.handle, w.informer = handle, informer
	return true
}

// end takes the event handler off the informer and wakes everybody. If it is to join, it waits for a callback that is running,
// and must not be called from one.
func (w *waiters) end(join bool) {
	w.registering.Lock()
	handle, informer := w.handle, w.informer
	w.handle, w.ended = nil, true
	w.registering.Unlock()
	switch {
	case handle == nil:
	case join:
		_ = toolscache.ShutDownEventHandler(informer, handle) // fails only if the informer has stopped
	default:
		_ = informer.RemoveEventHandler(handle)
	}
	w.wake()
}

func (w *waiters) add(one *waiter) {
	at := one.at()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.named == nil {
		w.named = map[types.NamespacedName]map[*waiter]struct{}{}
	}
	if w.named[at] == nil {
		w.named[at] = map[*waiter]struct{}{}
	}
	w.named[at][one] = struct{}{}
	if one.write != nil && number(one.write.ResourceVersion) {
		heap.Push(&w.ahead, one)
	}
	w.n.Add(1)
}

// remove says whether it was still there. Whoever removes it may call it.
func (w *waiters) remove(one *waiter) bool {
	at := one.at()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.named[at][one]; !there {
		return false
	}
	if delete(w.named[at], one); len(w.named[at]) == 0 {
		delete(w.named, at)
	}
	if one.place >= 0 {
		heap.Remove(&w.ahead, one.place)
	}
	w.n.Add(-1)
	return true
}

// call calls a waiter that has nothing to wait for any more.
func (w *waiters) call(one *waiter) {
	if !one.open() && w.remove(one) {
		one.f()
	}
}

// wake calls everybody.
func (w *waiters) wake() {
	for _, one := range w.all() {
		if w.remove(one) {
			one.f()
		}
	}
}

func (w *waiters) all() []*waiter {
	if w.n.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*waiter, 0, w.n.Load())
	for _, some := range w.named {
		for one := range some {
			all = append(all, one)
		}
	}
	return all
}

// event looks at those who wait for the object, and at those whose version the store has reached.
func (w *waiters) event(obj any) {
	if w.n.Load() == 0 {
		return
	}
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	o, _ := obj.(Object)
	for _, one := range w.concerned(o) {
		w.call(one)
	}
}

func (w *waiters) concerned(o Object) []*waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	var some []*waiter
	if len(w.ahead) > 0 {
		at := w.ahead[0].version()
		for len(w.ahead) > 0 && past(at, w.ahead[0].write.ResourceVersion) {
			some = append(some, heap.Pop(&w.ahead).(*waiter)) //nolint:forcetypeassert // it holds nothing else
		}
	}
	if o != nil {
		for one := range w.named[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] {
			some = append(some, one)
		}
	}
	return some
}

// OnAdd implements toolscache.ResourceEventHandler.
func (w *waiters) OnAdd(obj any, _ bool) { w.event(obj) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (w *waiters) OnUpdate(_, obj any) { w.event(obj) }

// OnDelete implements toolscache.ResourceEventHandler.
func (w *waiters) OnDelete(obj any) { w.event(obj) }

// byVersion is a heap of waiters: the one that waits for the lowest version is the first.
type byVersion []*waiter

func (h byVersion) Len() int { return len(h) }

func (h byVersion) Less(a, b int) bool {
	c, _ := resourceversion.CompareResourceVersion(h[a].write.ResourceVersion, h[b].write.ResourceVersion)
	return c < 0
}

func (h byVersion) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].place, h[b].place = a, b
}

// Push implements heap.Interface.
func (h *byVersion) Push(one any) {
	w := one.(*waiter) //nolint:forcetypeassert // add pushes nothing else
	w.place = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *byVersion) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.place = -1
	return w
}
