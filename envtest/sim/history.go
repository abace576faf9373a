// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

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
	// sharedEvents is how many of the newest events keep their encodings for other watches.
	sharedEvents = 128
)

// event is a change; before is nil for Added.
type event struct {
	kind          watch.EventType
	version       int64
	at            time.Time
	before, after *unstructured.Unstructured
	gone          *unstructured.Unstructured // see last
}

// last returns the object of a DELETED event: the state before the change, with its version.
func (e *event) last() *unstructured.Unstructured {
	if e.gone == nil {
		e.gone = withVersion(e.before, e.version)
	}
	return e.gone
}

// withVersion returns a copy of an object that shares everything but its resourceVersion.
func withVersion(o *unstructured.Unstructured, version int64) *unstructured.Unstructured {
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
	events  []event
	dropped int   // events that are not in events anymore
	oldest  int64 // the oldest version from which a watch may start
	expired int64 // lists of older versions are impossible
}

// record appends an event, and drops the oldest ones beyond the bound.
func (t *table) record(e event) {
	if len(t.events) == 2*keptEvents {
		newest := t.events[keptEvents-1].version
		t.oldest, t.expired = max(t.oldest, newest), max(t.expired, newest)
		t.events = append(make([]event, 0, 2*keptEvents), t.events[keptEvents:]...)
		t.dropped += keptEvents
	}
	t.events = append(t.events, e)
	if i := len(t.events) - sharedEvents; i >= 0 {
		delete(t.encodings, t.events[i].before)
		delete(t.encodings, t.events[i].gone)
		delete(t.shown, t.events[i].before)
		delete(t.shown, t.events[i].gone)
	}
	at, found := slices.BinarySearchFunc(t.keys, keyOf(e.after), comparePaths)
	switch {
	case e.kind == watch.Deleted && found:
		t.keys = slices.Delete(t.keys, at, at+1)
	case e.kind != watch.Deleted && !found:
		t.keys = slices.Insert(t.keys, at, keyOf(e.after))
	}
}

// expire forgets the history before version.
func (t *table) expire(version int64) { t.oldest, t.expired = version, version }

// after returns the index of the first event after version.
func (t *table) after(version int64) int {
	return sort.Search(len(t.events), func(i int) bool { return t.events[i].version > version })
}

// at returns the keys in path order and the objects as of a version, which has not expired.
func (t *table) at(version int64) ([]key, map[key]*unstructured.Unstructured) {
	first := t.after(version)
	if first == len(t.events) {
		return t.keys, t.objects
	}
	then := map[key]*unstructured.Unstructured{}
	for i := len(t.events) - 1; i >= first; i-- { // the oldest change decides
		then[keyOf(t.events[i].after)] = t.events[i].before
	}
	for k, o := range t.objects {
		if _, changed := then[k]; !changed {
			then[k] = o
		}
	}
	keys := make([]key, 0, len(then))
	for k, o := range then {
		if o != nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, comparePaths)
	return keys, then
}

// path is the key's name in storage, by which lists are ordered.
func (k key) path() string {
	if k.namespace == "" {
		return k.name
	}
	return k.namespace + "/" + k.name
}

// comparePaths compares the paths of two keys without building them.
func comparePaths(a, b key) int {
	if a.namespace == b.namespace {
		return strings.Compare(a.name, b.name)
	}
	short := min(len(a.namespace), len(b.namespace))
	if c := strings.Compare(a.namespace[:short], b.namespace[:short]); c != 0 {
		return c
	}
	if len(a.namespace) == short { // the other character can be '-', which is less than '/'
		return compareByte('/', b.namespace[short])
	}
	return compareByte(a.namespace[short], '/')
}

func compareByte(a, b byte) int { return int(a) - int(b) }
