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
	o      Options[K] // Hooks is not nil
	panics atomic.Int64
}

func (h *host[K]) recovered(name string) {
	v := recover()
	if v == nil {
		return
	}
	h.panics.Add(1)
	if panicked := h.o.Hooks.Panicked; panicked != nil {
		defer func() { _ = recover() }() // if this hook panics too, the count is enough
		panicked(hook.QueuePanicked{Queue: h.o.Name, Func: name, Value: v, Stack: debug.Stack()})
	}
}

func tell[K comparable, E any](h *host[K], name string, hook func(E), e E) {
	if hook == nil {
		return
	}
	defer h.recovered(name)
	hook(e)
}

func (h *host[K]) report(n *news) {
	for i, keys := range n.readied[:len(h.o.Classes)] {
		if keys > 0 {
			tell(h, "Hooks.Added", h.o.Hooks.Added, hook.QueueAdded{Queue: h.o.Name, Class: int(h.o.Classes[i].Class), Keys: keys})
		}
	}
	for d, keys := range n.dropped {
		if keys > 0 {
			tell(h, "Hooks.Dropped", h.o.Hooks.Dropped, hook.QueueDropped{Queue: h.o.Name, Why: dropNames[d], Keys: keys})
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

func (h *host[K]) isOwn(key K, delivery uint64, r Reason) bool {
	defer h.recovered("Own")
	return h.o.Own(key, delivery, r)
}

func (h *host[K]) allOwn(key K, delivery uint64, adds []Reason) bool {
	for _, r := range adds {
		if !h.isOwn(key, delivery, r) {
			return false
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
