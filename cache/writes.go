// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"math"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// Write is who wrote an object last, as its managedFields said.
type Write struct {
	// Manager is the field manager: a controller's name, kubectl, …
	Manager string
	// Operation is Apply or Update.
	Operation metav1.ManagedFieldsOperationType
	// Time is when, in whole seconds; zero if the entry does not say.
	Time time.Time
}

// writes keeps the newest entry of the managedFields that were dropped. Nobody tells it of deletions: from time to time it drops
// what the store does not have.
type writes struct {
	mu      sync.Mutex // guards what follows
	last    map[types.UID]kept
	names   []string          // of managers
	ids     map[string]uint16 // their places in names
	seq     uint32
	pruneAt int
}

type kept struct {
	seconds uint32
	seq     uint32
	manager uint16
	applied bool
}

const (
	// firstPrune is how many writes are kept before the first look at which of them are needed.
	firstPrune = 4096
	// recent writes may be of objects that have not reached the store yet.
	recent = 2 * firstPrune
)

func (w *writes) keep(uid types.UID, entries []metav1.ManagedFieldsEntry) {
	newest := newestOf(entries)
	k := kept{applied: newest.Operation == metav1.ManagedFieldsOperationApply}
	if newest.Time != nil {
		k.seconds = uint32(newest.Time.Unix())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last, w.ids, w.names, w.pruneAt = map[types.UID]kept{}, map[string]uint16{}, []string{""}, firstPrune
	}
	w.seq++
	k.seq = w.seq
	k.manager = w.idLocked(newest.Manager)
	w.last[uid] = k
}

// managedFields returns the entries of an object. For an unstructured one, without what they are about: that would be converted
// only to be dropped.
func managedFields(o Object) []metav1.ManagedFieldsEntry {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o.GetManagedFields()
	}
	raw, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	list, _ := raw.([]any)
	var entries []metav1.ManagedFieldsEntry
	for _, item := range list {
		m, _ := item.(map[string]any)
		var e metav1.ManagedFieldsEntry
		e.Manager, _ = m["manager"].(string)
		if operation, ok := m["operation"].(string); ok {
			e.Operation = metav1.ManagedFieldsOperationType(operation)
		}
		if text, ok := m["time"].(string); ok {
			if at, err := time.Parse(time.RFC3339, text); err == nil {
				e.Time = &metav1.Time{Time: at}
			}
		}
		entries = append(entries, e)
	}
	return entries
}

func writeOf(e metav1.ManagedFieldsEntry) Write {
	w := Write{Manager: e.Manager, Operation: e.Operation}
	if e.Time != nil {
		w.Time = e.Time.Time
	}
	return w
}

func newestOf(entries []metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	newest := entries[0]
	for _, e := range entries[1:] {
		if newest.Time == nil || e.Time != nil && !e.Time.Before(newest.Time) {
			newest = e
		}
	}
	return newest
}

// idLocked keeps each name once. If there are too many, further ones are not kept.
func (w *writes) idLocked(name string) uint16 {
	id, ok := w.ids[name]
	if !ok && len(w.names) <= math.MaxUint16 {
		name = strings.Clone(name) // and not the object that it is a part of
		id = uint16(len(w.names))
		w.ids[name], w.names = id, append(w.names, name)
	}
	return id
}

func (w *writes) of(uid types.UID) (Write, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok := w.last[uid]
	if !ok {
		return Write{}, false
	}
	operation := metav1.ManagedFieldsOperationUpdate
	if k.applied {
		operation = metav1.ManagedFieldsOperationApply
	}
	write := Write{Manager: w.names[k.manager], Operation: operation}
	if k.seconds > 0 {
		write.Time = time.Unix(int64(k.seconds), 0)
	}
	return write, true
}

// due says whether there are so many that prune is worth its time.
func (w *writes) due() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last != nil && len(w.last) >= w.pruneAt
}

// prune drops the writes of objects that the store does not have.
func (w *writes) prune(store toolscache.Store) {
	live := map[types.UID]bool{}
	for _, obj := range store.List() {
		if o, ok := obj.(Object); ok {
			live[o.GetUID()] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, k := range w.last {
		if !live[uid] && w.seq-k.seq > recent {
			delete(w.last, uid)
		}
	}
	w.pruneAt = max(firstPrune, 2*len(w.last))
}
