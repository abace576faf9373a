// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

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
