// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// handled summarizes what an event handler was told, for CatchUp: client-go does not report which events still wait for a
// handler. Its size does not depend on the number of objects. The handler has been told the state of a store if the sum over
// the objects that it was told of equals the sum over those in the store.
type handled struct {
	seed maphash.Seed

	changed bell // at each event

	mu    sync.Mutex // guards what follows
	told  progress
	since version // of the store when the handler was added
}

// progress is a sum over the objects that a handler was told of, and not told to be gone.
type progress struct {
	objects uint64 // sum of their identities
	states  uint64 // sum of their states at versions above floor
	// floor rises at each delete that a watch has shown. Its event has the version of the delete, so the state to subtract is
	// not known; but all earlier events were of earlier versions.
	floor  version
	newest version // of all events
	// unordered reports such a delete at a version that is not a number. states is not known from then on.
	unordered bool
}

// add adds an object's state to the sums.
func (p *progress) add(seed maphash.Seed, o identified) {
	object, state := p.weigh(seed, o)
	p.objects, p.states = p.objects+object, p.states+state
}

// subtract takes an object's state, as add was given it, out of the sums.
func (p *progress) subtract(seed maphash.Seed, o identified) {
	object, state := p.weigh(seed, o)
	p.objects, p.states = p.objects-object, p.states-state
}

func (p *progress) weigh(seed maphash.Seed, o identified) (object, state uint64) {
	object = identity(seed, o)
	if v := versionOf(seed, o.GetResourceVersion()); v > p.floor {
		state = maphash.Comparable(seed, [2]uint64{object, uint64(v)})
	}
	return object, state
}

// advance records the version of an event.
func (p *progress) advance(v version) {
	if v < unordered {
		p.newest = max(p.newest, v)
	}
}

// covers reports whether the handler was told the state of a store that has these objects.
func (p *progress) covers(seed maphash.Seed, objects []any) bool {
	there := progress{floor: p.floor}
	for _, obj := range objects {
		if o, ok := obj.(identified); ok {
			there.add(seed, o)
		}
	}
	return there.objects == p.objects && there.states == p.states
}

// next names the first of the objects that are newer than all events, or returns "".
func (p *progress) next(seed maphash.Seed, objects []any) (name string) {
	first := unordered
	for _, obj := range objects {
		o, ok := obj.(identified)
		if !ok {
			continue
		}
		if v := versionOf(seed, o.GetResourceVersion()); p.newest < v && v < first {
			first = v
			name = fmt.Sprintf("%s at %d", storeKey(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}), v)
		}
	}
	return name
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

// reaches reports whether v is w or a later one.
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

// begin records where the store was when the handler was added: the handler is told of the objects of then, and of no earlier
// event. A store that is synced and does not report its version (client-go's feature AtomicFIFO is off) may be anywhere.
func (h *handled) begin(at string, synced bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch v := versionOf(h.seed, at); {
	case v < unordered:
		h.since = v
	case at == "" && synced:
		h.since = unordered - 1
	}
}

// note records an event that was handled: the object or tombstone before it, and the object after it. Either may be nil.
func (h *handled) note(before, now any) {
	h.add(before, now)
	h.changed.ring()
}

func (h *handled) add(before, now any) {
	missed, tombstone := before.(toolscache.DeletedFinalStateUnknown)
	if tombstone {
		before = missed.Obj
	}
	o, _ := before.(identified)
	n, _ := now.(identified)
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.told
	switch {
	case o == nil:
	case n == nil && !tombstone:
		v := versionOf(h.seed, o.GetResourceVersion())
		p.advance(v)
		p.objects -= identity(h.seed, o)
		p.floor, p.states = p.newest, 0
		p.unordered = p.unordered || v >= unordered
	default:
		p.subtract(h.seed, o)
	}
	if n != nil {
		p.add(h.seed, n)
		p.advance(versionOf(h.seed, n.GetResourceVersion()))
	}
}

// now returns what the handler was told, and the version that it need not be told of.
func (h *handled) now() (told progress, since version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told, h.since
}
