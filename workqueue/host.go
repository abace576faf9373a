// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

var dropNames = [numDrops]string{
	dropWaiting: "waiting at shutdown",
	dropParked:  "parked at shutdown",
	dropPaused:  "paused at shutdown",
	dropDelayed: "delayed after shutdown",
	dropLate:    "added after shutdown",
	dropUnequal: "not equal to itself",
}

// host calls the host's functions, never under the lock, and recovers their panics.
type host[K comparable] struct {
	o      Options[K]
	gets   gets
	used   used
	panics atomic.Int64
}

// gets are the frequent events that are observed.
type gets struct{ added, delayed, taken, settled bool }

// used has the last frequent events for another use: new ones would be garbage for each key.
type used struct {
	added   atomic.Pointer[hook.QueueAdded]
	delayed atomic.Pointer[hook.QueueDelayed]
	taken   atomic.Pointer[hook.QueueTaken]
	settled atomic.Pointer[hook.QueueSettled]
}

func (h *host[K]) recovered(name string) {
	if v := recover(); v != nil {
		h.panicked(name, v)
	}
}

func (h *host[K]) panicked(name string, v any) {
	h.panics.Add(1)
	defer func() { _ = recover() }() // if this observer panics too, the count is enough
	h.o.Hook.Send(&hook.QueuePanicked{Queue: h.o.Name, Func: name, Value: v, Stack: debug.Stack()})
}

func (h *host[K]) send(e hook.Event) {
	defer func() {
		if v := recover(); v != nil {
			h.panicked("Hook("+reflect.TypeOf(e).Elem().Name()+")", v)
		}
	}()
	h.o.Hook.Send(e)
}

// tell sends an event. last is nil while another call uses it.
func tell[K comparable, E any, P interface {
	*E
	hook.Event
}](h *host[K], last *atomic.Pointer[E], e E) {
	p := last.Swap(nil)
	if p == nil {
		p = new(E)
	}
	*p = e
	h.send(P(p))
	*p = *new(E)
	last.Store(p)
}

func (h *host[K]) report(n *news) {
	for i, keys := range n.readied[:len(h.o.Classes)] {
		if keys > 0 && h.gets.added {
			tell(h, &h.used.added, hook.QueueAdded{Queue: h.o.Name, Class: int(h.o.Classes[i].Class), Keys: keys})
		}
	}
	for d, keys := range n.dropped {
		if keys > 0 {
			h.send(&hook.QueueDropped{Queue: h.o.Name, Why: dropNames[d], Keys: keys})
		}
	}
}

func (h *host[K]) tenant(key K) (name string, weight float64) {
	weight = 1
	if h.o.Tenant == nil {
		return "", weight
	}
	defer h.recovered("Tenant")
	name = h.o.Tenant(key)
	if h.o.TenantWeight != nil {
		if w := h.o.TenantWeight(name); validWeight(w) {
			weight = w
		}
	}
	return name, weight
}

func (h *host[K]) isOwn(key K, delivery uint64, r Reason) (own bool, within time.Duration) {
	defer h.recovered("Own")
	return h.o.Own(key, delivery, r)
}

// allOwn notes the add with the smallest positive within in the verdict.
func (h *host[K]) allOwn(key K, delivery uint64, adds []Reason, v *verdict) bool {
	for i := range adds {
		own, within := h.isOwn(key, delivery, adds[i])
		if !own {
			return false
		}
		if w := int64(within); w > 0 && (v.soon == 0 || w < v.soon) {
			v.soon, v.because = w, &adds[i]
		}
	}
	return true
}

func (h *host[K]) backoff(n int) time.Duration {
	d := h.delay(n)
	if h.o.Limiter != nil {
		now := time.Now()
		if r := h.o.Limiter.ReserveN(now, 1); r.OK() {
			d = max(d, r.DelayFrom(now))
		}
	}
	return max(d, 0)
}

func (h *host[K]) delay(n int) time.Duration {
	defer h.recovered("Backoff")
	return h.o.Backoff.Delay(n)
}

func unsure(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128, reflect.Interface:
		return true
	case reflect.Array:
		return unsure(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if unsure(f.Type) {
				return true
			}
		}
	}
	return false
}

func sound[K comparable](key K) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return key == key // false for a NaN
}
