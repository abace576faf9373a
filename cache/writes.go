// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
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
	// Time is when, in whole seconds.
	Time time.Time
}

// writes keeps the newest entry of the managedFields that were dropped. Nobody tells it of deletions: from time to time it drops
// what the store does not have.
type writes struct {
	mu      sync.Mutex // guards what follows
	last    map[types.UID]kept
	names   map[string]string // each manager's name once
	seq     uint32
	pruneAt int
}

type kept struct {
	manager string
	seconds int64
	seq     uint32
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
		k.seconds = newest.Time.Unix()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last, w.names, w.pruneAt = map[types.UID]kept{}, map[string]string{}, firstPrune
	}
	w.seq++
	k.seq = w.seq
	k.manager = w.internLocked(newest.Manager)
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

func newestOf(entries []metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	newest := entries[0]
	for _, e := range entries[1:] {
		if newest.Time == nil || e.Time != nil && !e.Time.Before(newest.Time) {
			newest = e
		}
	}
	return newest
}

// internLocked keeps each name once, if there are not too many of them.
func (w *writes) internLocked(name string) string {
	if same, ok := w.names[name]; ok {
		return same
	}
	if len(w.names) < 1000 {
		w.names[name] = name
	}
	return name
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
	return Write{Manager: k.manager, Operation: operation, Time: time.Unix(k.seconds, 0)}, true
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
