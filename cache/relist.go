// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

// Missed reports whether something may have happened to a written object without any event: a declared
// informer has listed everything again since the write, and its store does not have the object. If
// another client has deleted the object before that list, the informer never had it, and no
// event comes. It is false for a write whose version or UID is not known, and for informers that were not
// made here.
func (d *Declarations) Missed(w Written) bool {
	n := d.now.Load()
	if n == nil || w.UID == "" || w.ResourceVersion == "" || w.Gone || w.Marked {
		return false
	}
	for _, g := range n.groups {
		i := g.keeper(&w)
		if i == nil || i.lw == nil {
			continue
		}
		if _, listed := i.lw.Listed(); !listed || !i.relisted(w.ResourceVersion) {
			continue
		}
		if stored := i.stored(&w); (stored == nil || stored.GetUID() != w.UID) && !g.scope.excludes(&w, i.key) {
			return true
		}
	}
	return false
}
