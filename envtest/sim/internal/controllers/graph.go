// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// graph knows owners and dependents, for the garbage collector. The store's lock guards it. It
// follows the rules of kube-controller-manager. Its queues are in order, so that tests repeat.
type graph struct {
	objects    map[types.UID]*node
	dependents map[types.UID][]*node // by the uid of the owner, which may not exist
	attempts   []*node               // may have to be deleted, or may have waited long enough
	retries    []*node               // attempted again when there are no other attempts
	orphaners  []*node               // their dependents lose them
}

// node is an object in the graph.
type node struct {
	table *store.Table
	key   store.Key
	uid   types.UID
	refs  []metav1.OwnerReference
	waits bool // its foreground deletion has begun; the real collector does not notice its end
}

func newGraph() *graph {
	return &graph{objects: map[types.UID]*node{}, dependents: map[types.UID][]*node{}}
}

func (g *graph) attempt(nodes ...*node) {
	for _, n := range nodes {
		if n != nil && !slices.Contains(g.attempts, n) {
			g.attempts = append(g.attempts, n)
		}
	}
}

// retry enqueues a node behind all others.
func (g *graph) retry(n *node) {
	g.attempts = slices.DeleteFunc(g.attempts, func(o *node) bool { return o == n })
	g.retries = append(g.retries, n)
}

// observe updates the graph after a write, and enqueues what may have to change because of it.
func (g *graph) observe(t *store.Table, kind watch.EventType, before, after *unstructured.Unstructured) {
	if t.Name == "events" && (t.Group == "" || t.Group == "events.k8s.io") {
		return // as in the real collector
	}
	uid := after.GetUID()
	if kind == watch.Deleted {
		g.forget(uid)
		return
	}
	n := g.objects[uid]
	if n == nil {
		n = &node{table: t, key: store.KeyOf(after), uid: uid}
		g.objects[uid] = n
		g.attempt(g.dependents[uid]...) // they may have named it by other coordinates
	}
	g.refer(n, after.GetOwnerReferences())
	switch {
	case starts(before, after, metav1.FinalizerOrphanDependents):
		g.orphaners = append(g.orphaners, n)
	case starts(before, after, metav1.FinalizerDeleteDependents):
		n.waits = true
		g.attempt(g.dependents[uid]...)
		g.attempt(n)
	}
}

// starts reports whether a write began a deletion with the finalizer.
func starts(before, after *unstructured.Unstructured, finalizer string) bool {
	return deleting(after, finalizer) && (before == nil || !deleting(before, finalizer))
}

func deleting(o *unstructured.Unstructured, finalizer string) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), finalizer)
}

func (g *graph) forget(uid types.UID) {
	n := g.objects[uid]
	if n == nil {
		return
	}
	delete(g.objects, uid)
	g.attempt(g.dependents[uid]...)
	for _, ref := range n.refs {
		g.separate(n, ref.UID)
		g.attempt(g.objects[ref.UID])
	}
}

func (g *graph) refer(n *node, refs []metav1.OwnerReference) {
	if len(n.refs) == 0 && len(refs) == 0 {
		return
	}
	old := n.refs
	n.refs = refs
	for _, ref := range refs {
		at := slices.IndexFunc(old, func(o metav1.OwnerReference) bool { return o.UID == ref.UID })
		if at >= 0 {
			if blocks(old[at]) && !blocks(ref) {
				g.attempt(g.objects[ref.UID])
			}
			continue
		}
		g.dependents[ref.UID] = append(g.dependents[ref.UID], n)
		if owner := g.objects[ref.UID]; owner == nil || !owner.is(ref, n.key.Namespace) {
			g.attempt(n)
		}
	}
	for _, ref := range old {
		if slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == ref.UID }) {
			continue
		}
		g.separate(n, ref.UID)
		if blocks(ref) {
			g.attempt(g.objects[ref.UID])
		}
	}
}

func (g *graph) separate(n *node, owner types.UID) {
	rest := slices.DeleteFunc(g.dependents[owner], func(d *node) bool { return d == n })
	if g.dependents[owner] = rest; len(rest) == 0 {
		delete(g.dependents, owner)
	}
}

// is reports whether a dependent in the namespace names n correctly.
func (n *node) is(ref metav1.OwnerReference, namespace string) bool {
	return n.table.Kind == ref.Kind && n.table.GV().String() == ref.APIVersion && n.key.Name == ref.Name &&
		(n.key.Namespace == "" || n.key.Namespace == namespace)
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
