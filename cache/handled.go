// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"hash/maphash"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// handled is what an event handler has been told of, for CatchUp: client-go does not say what still waits for a handler. It takes
// some 25 bytes for each object.
type handled struct {
	seed maphash.Seed

	mu       sync.Mutex         // guards what follows
	versions map[uint64]version // by identity
	newest   version            // of all events, or where the store was when the handler was added
	changed  chan struct{}      // closed at the next event; nil while nobody waits
}

// version is a resourceVersion. Those that are not numbers have the highest bit set, and no order.
type version uint64

const unordered = version(1) << 63

func versionOf(seed maphash.Seed, text string) version {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return version(maphash.String(seed, text)) | unordered
	}
	return version(n)
}

// reaches says whether v is w or a later one.
func (v version) reaches(w version) bool {
	return v == w || v < unordered && w < unordered && v > w
}

// identity tells objects apart, also those that had the same name one after another.
func identity(seed maphash.Seed, o identified) uint64 {
	if uid := o.GetUID(); uid != "" {
		return maphash.String(seed, string(uid))
	}
	return maphash.Comparable(seed, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
}

// identified is what identifies an object and its state.
type identified interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetResourceVersion() string
}

func newHandled(seed maphash.Seed) *handled {
	return &handled{seed: seed, versions: map[uint64]version{}}
}

// begin takes down where the store was when the handler was added: it is told of the objects of then, and of no event before. A
// store that is synced and does not say where it is (client-go's feature AtomicFIFO is off) may be anywhere.
func (h *handled) begin(at string, synced bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at == "" && synced {
		h.newest = unordered - 1
	}
	h.advanceLocked(versionOf(h.seed, at))
}

func (h *handled) advanceLocked(v version) {
	if v < unordered {
		h.newest = max(h.newest, v)
	}
}

// note takes down an event that was handled: what was there before it, and what is there now. Either may be nil.
func (h *handled) note(before, now any) {
	o, _ := lastKnownState(before).(identified)
	n, _ := now.(identified)
	h.mu.Lock()
	defer h.mu.Unlock()
	if o != nil {
		if n == nil || o.GetUID() != n.GetUID() {
			delete(h.versions, identity(h.seed, o))
		}
		h.advanceLocked(versionOf(h.seed, o.GetResourceVersion()))
	}
	if n != nil {
		v := versionOf(h.seed, n.GetResourceVersion())
		h.versions[identity(h.seed, n)] = v
		h.advanceLocked(v)
	}
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// lastKnownState returns the object of a tombstone, and anything else as it is.
func lastKnownState(obj any) any {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}

// next returns a channel that is closed at the next event.
func (h *handled) next() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// of returns the version of an object that was handled last, if it is there.
func (h *handled) of(id uint64) (v version, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, there = h.versions[id]
	return v, there
}

func (h *handled) at() version {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest
}

// has says whether something is there of which that is true.
func (h *handled) has(is func(id uint64, v version) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, v := range h.versions {
		if is(id, v) {
			return true
		}
	}
	return false
}
