// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

type key struct{ namespace, name string }

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

// table holds one resource's objects and history. The Server's mutex guards it. Stored objects are
// never modified.
type table struct {
	Resource
	strategy
	builtIn bool   // a kind of client-go's scheme
	schema  Schema // nil: every object is valid
	// newStatus is the status of a new object of a built-in kind.
	newStatus map[string]any

	objects map[key]*unstructured.Unstructured
	events  []event
	oldest  int64         // the oldest version from which a watch may start
	changed chan struct{} // closed and replaced at each event
	gone    chan struct{} // closed when the resource is withdrawn

	fields map[string]*managedfields.FieldManager // by subresource
}

// event is a change; before is nil for Added.
type event struct {
	kind          watch.EventType
	version       int64
	at            time.Time
	before, after *unstructured.Unstructured
}

func newTable(r Resource, version int64) *table {
	t := &table{
		Resource: r, strategy: customStrategy(), builtIn: scheme.Scheme.Recognizes(r.gvk()),
		objects: map[key]*unstructured.Unstructured{}, oldest: version,
		changed: make(chan struct{}), gone: make(chan struct{}),
	}
	if t.builtIn {
		t.strategy = builtInStrategy(r.gvr().GroupResource())
		t.newStatus = emptyStatus(r)
	}
	return t
}

// emptyStatus returns the status of a built-in kind's zero value, or nil if it has none.
func emptyStatus(r Resource) map[string]any {
	obj, err := scheme.Scheme.New(r.gvk())
	if err != nil {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil
	}
	status, _ := content["status"].(map[string]any)
	return status
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

const (
	added    = watch.Added
	modified = watch.Modified
)

// storeLocked replaces old (nil: creates) by u and takes ownership of u. Unlike a request, it
// stores everything: also the status, and objects that are not valid.
func (s *Server) storeLocked(t *table, old, u *unstructured.Unstructured) *unstructured.Unstructured {
	if old == nil {
		s.identifyLocked(t, u)
		if t.generation != noGeneration {
			u.SetGeneration(1)
		}
		return s.appendLocked(t, watch.Added, nil, u).DeepCopy()
	}
	if u.GetUID() == "" {
		u.SetUID(old.GetUID())
	}
	u.SetCreationTimestamp(old.GetCreationTimestamp())
	u.SetDeletionTimestamp(old.GetDeletionTimestamp())
	u.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	u.SetGeneration(old.GetGeneration())
	u.SetResourceVersion(old.GetResourceVersion())
	if u.GetUID() != old.GetUID() { // Put with another uid: delete and create
		s.removeLocked(t, old)
		u.SetDeletionTimestamp(nil)
		u.SetDeletionGracePeriodSeconds(nil)
		return s.storeLocked(t, nil, u)
	}
	if equal(old.Object, u.Object) {
		return old.DeepCopy()
	}
	if t.changesGeneration(u, old) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
	if removable(old, u) {
		s.removeLocked(t, u)
		return u.DeepCopy()
	}
	return s.appendLocked(t, watch.Modified, old, u).DeepCopy()
}

// removeLocked deletes an object with the last state o.
func (s *Server) removeLocked(t *table, o *unstructured.Unstructured) {
	s.appendLocked(t, watch.Deleted, t.objects[keyOf(o)], o.DeepCopy())
}

// appendLocked stores after, which nothing may change from now on, as the next version.
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
	return after
}
