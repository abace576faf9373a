// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"

	"github.com/setpoint-dev/setpoint/hook"
)

// Gap is an informer that does not show yet what was written. Declarations.Behind returns one.
type Gap struct {
	group    *group
	informer *informer
	written  Written
}

// String says which informer does not show what, and where it is.
func (g *Gap) String() string {
	i, w := g.informer, &g.written
	name := i.key.kind()
	if words := i.key.String(); words != "" {
		name += " (" + words + ")"
	}
	var where string
	version := i.shared.GetStore().LastStoreSyncResourceVersion()
	switch phase, _, _ := i.at(); {
	case phase == hook.Syncing:
		where = "is not synced"
	case version == "":
		where = "is at a version that it does not say"
	default:
		where = "is at version " + version
	}
	what, at := "the write", ""
	if w.Gone || w.Marked {
		what = "the deletion"
	}
	if w.ResourceVersion != "" {
		at = " at " + w.ResourceVersion
	}
	return fmt.Sprintf("%s %s and does not show %s of %s%s", name, where, what, w, at)
}

// Notify has f called when the informer shows what was written, or when waiting has become no use: ask Behind again then. f is
// called at most once, off all locks, perhaps before Notify returns, and must not block. It is not called for what reaches the
// store without an event, such as the version of a bookmark, so whoever waits also asks from time to time. cancel ends it; f may
// be running then. Both may be called from anywhere.
//
// The first Notify for an informer adds an event handler to it, which stays as long as the informer is declared anywhere.
func (g *Gap) Notify(f func()) (cancel func()) {
	one := &waiter{gap: g, f: f, place: -1}
	all := &g.informer.waiters
	all.add(one)
	if all.listen(g.informer) {
		all.call(one) // what was shown before it was added would not come again
	} else if all.remove(one) {
		f()
	}
	return func() { all.remove(one) }
}

// open says whether there is still something to wait for.
func (g *Gap) open() bool {
	if g.group.keeper(&g.written) != g.informer { // it has left the scope
		return false
	}
	v, _ := g.informer.shows(&g.written, &g.group.scope)
	return v == behind
}
