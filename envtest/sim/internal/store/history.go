// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// keptEvents is how many events of a kind watches can resume from, at least. Twice as many are
	// stored before the older half is dropped.
	keptEvents = 5000
	// SharedEvents is how many of the newest events keep their encodings for other watches.
	SharedEvents = 128
)

// Event is a change; before is nil for Added.
type Event struct {
	Kind          watch.EventType
	Version       int64
	At            time.Time
	Before, After *unstructured.Unstructured
	gone          *unstructured.Unstructured // see last
}

// Last returns the object of a DELETED event: the state before the change, with its version.
func (e *Event) Last() *unstructured.Unstructured {
	if e.gone == nil {
		e.gone = WithVersion(e.Before, e.Version)
	}
	return e.gone
}

// WithVersion returns a copy of an object that shares everything but its resourceVersion.
func WithVersion(o *unstructured.Unstructured, version int64) *unstructured.Unstructured {
	metadata, _ := o.Object["metadata"].(map[string]any)
	u := &unstructured.Unstructured{Object: make(map[string]any, len(o.Object))}
	for field, value := range o.Object {
		u.Object[field] = value
	}
	own := make(map[string]any, len(metadata)+1)
	for field, value := range metadata {
		own[field] = value
	}
	own["resourceVersion"] = strconv.FormatInt(version, 10)
	u.Object["metadata"] = own
	return u
}

// history is what watches and lists of old versions read: the newest events of a kind.
type history struct {
	Events  []Event
	Dropped int   // events that are not in events anymore
	Oldest  int64 // the oldest version from which a watch may start
	Expired int64 // lists of older versions are impossible
}

// log appends an event, and drops the oldest ones beyond the bound.
func (t *Table) log(e Event) {
	if len(t.Events) == 2*keptEvents {
		newest := t.Events[keptEvents-1].Version
		t.Oldest, t.Expired = max(t.Oldest, newest), max(t.Expired, newest)
		t.Events = append(make([]Event, 0, 2*keptEvents), t.Events[keptEvents:]...)
		t.Dropped += keptEvents
	}
	t.Events = append(t.Events, e)
	if i := len(t.Events) - SharedEvents; i >= 0 {
		delete(t.encodings, t.Events[i].Before)
		delete(t.encodings, t.Events[i].gone)
		delete(t.Shown, t.Events[i].Before)
		delete(t.Shown, t.Events[i].gone)
	}
	at, found := slices.BinarySearchFunc(t.Keys, KeyOf(e.After), comparePaths)
	switch {
	case e.Kind == watch.Deleted && found:
		t.Keys = slices.Delete(t.Keys, at, at+1)
	case e.Kind != watch.Deleted && !found:
		t.Keys = slices.Insert(t.Keys, at, KeyOf(e.After))
	}
}

// Expire forgets the history before version.
func (t *Table) Expire(version int64) { t.Oldest, t.Expired = version, version }

// After returns the index of the first event after version.
func (t *Table) After(version int64) int {
	return sort.Search(len(t.Events), func(i int) bool { return t.Events[i].Version > version })
}

// At returns the keys in path order and the objects as of a version, which has not expired.
func (t *Table) At(version int64) ([]Key, map[Key]*unstructured.Unstructured) {
	first := t.After(version)
	if first == len(t.Events) {
		return t.Keys, t.Objects
	}
	then := map[Key]*unstructured.Unstructured{}
	for i := len(t.Events) - 1; i >= first; i-- { // the oldest change decides
		then[KeyOf(t.Events[i].After)] = t.Events[i].Before
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

// path is the key's name in storage, by which lists are ordered.
func (k Key) path() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// comparePaths compares the paths of two keys without building them.
func comparePaths(a, b Key) int {
	if a.Namespace == b.Namespace {
		return strings.Compare(a.Name, b.Name)
	}
	short := min(len(a.Namespace), len(b.Namespace))
	if c := strings.Compare(a.Namespace[:short], b.Namespace[:short]); c != 0 {
		return c
	}
	if len(a.Namespace) == short { // the other character can be '-', which is less than '/'
		return compareByte('/', b.Namespace[short])
	}
	return compareByte(a.Namespace[short], '/')
}

func compareByte(a, b byte) int { return int(a) - int(b) }
