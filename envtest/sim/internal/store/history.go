// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// keptEvents is how many events of a kind watches can resume from, at least. Twice as many are
	// stored before the older half is dropped.
	keptEvents = 5000
	// sharedEvents is how many of the newest events keep their encodings for other watches.
	sharedEvents = 128
)

// Event is a change; Before is nil for Added.
type Event struct {
	Kind          watch.EventType
	Version       int64
	At            time.Time
	Before, After *unstructured.Unstructured
	gone          *unstructured.Unstructured // see Last
}

// Last returns the object of a DELETED event: the state before the change, with its version.
func (e *Event) Last() *unstructured.Unstructured {
	if e.gone == nil {
		e.gone = WithVersion(e.Before, e.Version)
	}
	return e.gone
}

// history is what watches and lists of old versions read: the newest events of a kind. Events have
// numbers, which begin at 0.
type history struct {
	events  []Event
	dropped int   // how many are not in events anymore
	Oldest  int64 // the oldest version from which a watch may start
	Expired int64 // lists of older versions are impossible
}

// End returns the number of the next event.
func (h *history) End() int { return h.dropped + len(h.events) }

// Event returns the event with a number below End, or nil if it was dropped.
func (h *history) Event(n int) *Event {
	if n < h.dropped {
		return nil
	}
	return &h.events[n-h.dropped]
}

// Recent reports whether other watches are likely to need the event, too.
func (h *history) Recent(n int) bool { return n >= h.End()-sharedEvents }

// After returns the number of the first event after version.
func (h *history) After(version int64) int {
	return h.dropped + sort.Search(len(h.events), func(i int) bool { return h.events[i].Version > version })
}

// Expire forgets the history before version.
func (h *history) Expire(version int64) { h.Oldest, h.Expired = version, version }

// log appends an event, and drops the oldest ones beyond the bound.
func (t *Table) log(e Event) {
	if len(t.events) == 2*keptEvents {
		newest := t.events[keptEvents-1].Version
		t.Oldest, t.Expired = max(t.Oldest, newest), max(t.Expired, newest)
		t.events = append(make([]Event, 0, 2*keptEvents), t.events[keptEvents:]...)
		t.dropped += keptEvents
	}
	t.events = append(t.events, e)
	if i := len(t.events) - sharedEvents; i >= 0 {
		delete(t.encodings, t.events[i].Before)
		delete(t.encodings, t.events[i].gone)
		delete(t.shown, t.events[i].Before)
		delete(t.shown, t.events[i].gone)
	}
	at, found := slices.BinarySearchFunc(t.Keys, KeyOf(e.After), comparePaths)
	switch {
	case e.Kind == watch.Deleted && found:
		t.Keys = slices.Delete(t.Keys, at, at+1)
	case e.Kind != watch.Deleted && !found:
		t.Keys = slices.Insert(t.Keys, at, KeyOf(e.After))
	}
}

// At returns the keys in path order and the objects as of a version, which has not expired.
func (t *Table) At(version int64) ([]Key, map[Key]*unstructured.Unstructured) {
	first := t.After(version) - t.dropped
	if first == len(t.events) {
		return t.Keys, t.Objects
	}
	then := map[Key]*unstructured.Unstructured{}
	for i := len(t.events) - 1; i >= first; i-- { // the oldest change decides
		then[KeyOf(t.events[i].After)] = t.events[i].Before
	}
	for k, o := range t.Objects {
		if _, changed := then[k]; !changed {
			then[k] = o
		}
	}
	keys := make([]Key, 0, len(then))
	for k, o := range then {
		if o != nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, comparePaths)
	return keys, then
}
