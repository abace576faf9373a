// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

type key struct{ namespace, name string }

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

// table holds one resource's objects and history. The Server's mutex guards it. Stored objects are
// never modified.
type table struct {
	Resource
	objects map[key]*unstructured.Unstructured
	events  []event
	oldest  int64         // the oldest version from which a watch may start
	changed chan struct{} // closed and replaced at each event
	gone    chan struct{} // closed when the resource is withdrawn
}

// event is a change; before is nil for Added.
type event struct {
	kind          watch.EventType
	version       int64
	at            time.Time
	before, after *unstructured.Unstructured
}

func newTable(r Resource, version int64) *table {
	return &table{
		Resource: r, objects: map[key]*unstructured.Unstructured{}, oldest: version,
		changed: make(chan struct{}), gone: make(chan struct{}),
	}
}

// sorted returns the objects in key order.
func (t *table) sorted() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, o := range t.objects {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return list
}

// storeLocked replaces old (nil: creates) by u and takes ownership of u.
func (s *Server) storeLocked(t *table, old, u *unstructured.Unstructured) *unstructured.Unstructured {
	if old == nil {
		s.uids++
		if u.GetUID() == "" {
			u.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
		}
		u.SetCreationTimestamp(metav1.NewTime(time.Now()))
		if _, ok := u.Object["spec"]; ok {
			u.SetGeneration(1)
		}
		return s.appendLocked(t, watch.Added, nil, u)
	}
	if u.GetUID() == "" {
		u.SetUID(old.GetUID())
	}
	u.SetCreationTimestamp(old.GetCreationTimestamp())
	u.SetDeletionTimestamp(old.GetDeletionTimestamp())
	u.SetGeneration(old.GetGeneration())
	u.SetResourceVersion(old.GetResourceVersion())
	if u.GetUID() != old.GetUID() { // Put with another uid: delete and create
		s.removeLocked(t, old)
		u.SetDeletionTimestamp(nil)
		return s.storeLocked(t, nil, u)
	}
	if reflect.DeepEqual(old.Object, u.Object) {
		return old.DeepCopy()
	}
	if !reflect.DeepEqual(old.Object["spec"], u.Object["spec"]) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
	if u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		s.removeLocked(t, u)
		return u.DeepCopy()
	}
	return s.appendLocked(t, watch.Modified, old, u)
}

// removeLocked deletes an object with the last state o.
func (s *Server) removeLocked(t *table, o *unstructured.Unstructured) {
	s.appendLocked(t, watch.Deleted, t.objects[keyOf(o)], o.DeepCopy())
}

func (s *Server) appendLocked(t *table, kind watch.EventType, before, after *unstructured.Unstructured) *unstructured.Unstructured {
	s.version++
	after.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if kind == watch.Deleted {
		delete(t.objects, keyOf(after))
	} else {
		t.objects[keyOf(after)] = after
	}
	t.events = append(t.events, event{kind: kind, version: s.version, at: time.Now(), before: before, after: after})
	close(t.changed)
	t.changed = make(chan struct{})
	return after.DeepCopy()
}
