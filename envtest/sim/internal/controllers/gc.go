// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/fieldmanager"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// controllerManager is the field manager of the garbage collector and the namespace controller.
const controllerManager = "kube-controller-manager"

// Controllers do at once what the controllers of a real cluster do later: they collect garbage,
// empty namespaces and serve CustomResourceDefinitions.
type Controllers struct {
	store       *store.Store
	managers    *fieldmanager.Managers
	graph       *graph
	terminating map[string]bool           // being deleted; true: it changed
	crdsChanged bool                      // CustomResourceDefinitions have to be settled
	crdStores   map[string]*store.Storage // by name
}

// NewControllers returns the controllers of a store.
func NewControllers(s *store.Store, m *fieldmanager.Managers) *Controllers {
	return &Controllers{store: s, managers: m, graph: newGraph(), terminating: map[string]bool{}}
}

// Restart makes the controllers see all objects of a restored store as new ones.
func (c *Controllers) Restart() {
	c.graph = newGraph()
	clear(c.terminating)
	c.crdsChanged = true
	c.Settle()
}

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

// collect does everything that the garbage collector would do now. The real collector's
// workers attempt several objects at the same time: each reads its owners before another's write
// is stored. So a round of attempts decides on the state before the round.
func (c *Controllers) collect() {
	g := c.graph
	for c.observe(); len(g.attempts)+len(g.orphaners)+len(g.retries) > 0; c.observe() {
		if len(g.orphaners) > 0 {
			n := g.orphaners[0]
			g.orphaners = g.orphaners[1:]
			c.orphan(n)
			continue
		}
		if len(g.attempts) == 0 {
			g.attempts, g.retries = g.retries, nil
		}
		round := g.attempts
		g.attempts = nil
		var writes []func()
		for _, n := range round {
			if write := c.attempt(n); write != nil {
				writes = append(writes, write)
			}
		}
		for _, write := range writes {
			write()
		}
	}
}

func (c *Controllers) live(n *node) *unstructured.Unstructured {
	if live := n.table.Objects[n.key]; live != nil && live.GetUID() == n.uid {
		return live
	}
	return nil
}

// orphan removes n from the owners of its dependents, and its finalizer.
func (c *Controllers) orphan(n *node) {
	for _, d := range slices.Clone(c.graph.dependents[n.uid]) {
		c.disown(d, []types.UID{n.uid})
	}
	c.unhold(n, metav1.FinalizerOrphanDependents)
}

// disown removes owners from the object of n.
func (c *Controllers) disown(n *node, owners []types.UID) {
	c.edit(n, func(u *unstructured.Unstructured) {
		refs := slices.DeleteFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return slices.Contains(owners, r.UID) })
		if u.SetOwnerReferences(refs); len(refs) == 0 {
			unstructured.RemoveNestedField(u.Object, "metadata", "ownerReferences")
		}
	})
}

func (c *Controllers) unhold(n *node, finalizer string) {
	c.edit(n, func(u *unstructured.Unstructured) {
		u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == finalizer }))
	})
}

// attempt returns the write that n needs now, or nil: the deletion of an object that has lost
// all owners, the removal of owners that are gone, or the end of the wait for dependents.
func (c *Controllers) attempt(n *node) (write func()) {
	live := c.live(n)
	if live == nil {
		return nil
	}
	if live.GetDeletionTimestamp() != nil {
		if !deleting(live, metav1.FinalizerDeleteDependents) || c.awaitsDependents(n) {
			return nil
		}
		return func() { c.unhold(n, metav1.FinalizerDeleteDependents) }
	}
	owners, ok := c.owners(live)
	policy := metav1.DeletePropagationBackground
	switch {
	case !ok || len(n.refs) == 0:
		return nil
	case owners.solid > 0:
		lost := append(owners.gone, owners.waiting...)
		if len(lost) == 0 {
			return nil
		}
		return func() { c.disown(n, lost) }
	case len(owners.waiting) > 0 && len(c.graph.dependents[n.uid]) > 0:
		waits := func(d *node) bool { return d.waits } // n and d may own each other
		if slices.ContainsFunc(c.graph.dependents[n.uid], waits) && slices.ContainsFunc(live.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return unblocks(n.table, r) }) {
			return func() {
				c.unblock(n) // its owner may now go without it
				c.observe()
				c.graph.retry(n)
			}
		}
		policy = metav1.DeletePropagationForeground
	case slices.Contains(live.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(live.GetFinalizers(), metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return func() { c.collectObject(n, policy) }
}

// awaitsDependents reports whether a dependent blocks the foreground deletion of n.
func (c *Controllers) awaitsDependents(n *node) bool {
	blocked := false
	for _, d := range c.graph.dependents[n.uid] {
		if !slices.ContainsFunc(d.refs, func(r metav1.OwnerReference) bool { return r.UID == n.uid && blocks(r) }) {
			continue
		}
		blocked = true
		if live := c.live(d); live != nil && live.GetDeletionTimestamp() == nil {
			c.graph.attempt(d)
		}
	}
	return blocked
}

// unblock makes n's references non-blocking.
func (c *Controllers) unblock(n *node) {
	c.edit(n, func(u *unstructured.Unstructured) {
		refs := u.GetOwnerReferences()
		for i := range refs {
			if unblocks(n.table, refs[i]) {
				refs[i].BlockOwnerDeletion = new(bool)
			}
		}
		u.SetOwnerReferences(refs)
	})
}

// unblocks reports whether the collector changes a reference to make it non-blocking. Custom kinds
// have no strategic merge patch, so it replaces all their references.
func unblocks(t *store.Table, ref metav1.OwnerReference) bool {
	return blocks(ref) || !t.BuiltIn && ref.BlockOwnerDeletion == nil
}

// owners are an object's owners by their state.
type owners struct {
	solid         int
	gone, waiting []types.UID
}

// owners looks the owners of an object up. It returns false if it cannot, because of an owner
// of an unknown kind, or of a namespaced owner of a cluster-scoped object.
func (c *Controllers) owners(o *unstructured.Unstructured) (found owners, ok bool) {
	for _, ref := range o.GetOwnerReferences() {
		t := c.store.TableOf(ref.APIVersion, ref.Kind)
		if t == nil || t.Namespaced && o.GetNamespace() == "" {
			return owners{}, false
		}
		k := store.Key{Name: ref.Name}
		if t.Namespaced {
			k.Namespace = o.GetNamespace()
		}
		switch owner := t.Objects[k]; {
		case owner == nil || owner.GetUID() != ref.UID:
			found.gone = append(found.gone, ref.UID)
		case deleting(owner, metav1.FinalizerDeleteDependents):
			found.waiting = append(found.waiting, ref.UID)
		default:
			found.solid++
		}
	}
	return found, true
}

// collectObject deletes the object of n.
func (c *Controllers) collectObject(n *node, policy metav1.DeletionPropagation) {
	if live := c.live(n); live != nil {
		// Without preconditions and dry run it cannot fail.
		_, _, _ = c.Delete(n.table, live, &metav1.DeleteOptions{PropagationPolicy: &policy})
	}
}

// edit changes the object of n as a controller of kube-controller-manager.
func (c *Controllers) edit(n *node, change func(u *unstructured.Unstructured)) {
	live := c.live(n)
	if live == nil {
		return
	}
	u := live.DeepCopy()
	if change(u); !jsonvalue.Equal(u.Object, live.Object) {
		c.control(n.table, live, u, "")
	}
}

// control makes u the new state of live as a controller of kube-controller-manager. It skips
// validation, because Server.Put does.
func (c *Controllers) control(t *store.Table, live, u *unstructured.Unstructured, subresource string) {
	r := &request.Request{Verb: "update", Resource: t.GVR(), Namespace: u.GetNamespace(), Name: u.GetName(), Subresource: subresource, Manager: controllerManager}
	if err := c.managers.Manage(r, t, live, u); err != nil {
		return // only for an object that the field managers cannot read
	}
	if rules.Removable(live, u) {
		c.store.Remove(t, u)
		return
	}
	c.store.Record(t, watch.Modified, live, u)
}
