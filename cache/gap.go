// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// Gap is something that an informer does not show yet: a write (Declarations.Behind), or, while it
// fails, anything new (Declarations.Failing).
type Gap struct {
	group    *group
	informer *informer
	written  Written
	failing  bool // the informer fails, and written is empty
}

// String says which informer does not show what, and where it is.
func (g *Gap) String() string {
	i, w := g.informer, &g.written
	if g.failing {
		return i.state().String()
	}
	name := i.key.kind()
	if words := i.key.String(); words != "" {
		name += " (" + words + ")"
	}
	var where string
	version := i.shared.GetStore().LastStoreSyncResourceVersion()
	switch phase, _, err := i.at(); {
	case phase == hook.Syncing:
		where = "is not synced"
	case err != nil:
		where = fmt.Sprintf("is %s (%v)", phase, err)
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

// Failing reports whether the gap cannot close before its informer recovers.
func (g *Gap) Failing() bool { return g.informer.fails() }

// Notify calls f when the gap has closed, or when waiting has become no use: ask again then. f is
// called at most once, off all locks, perhaps before Notify returns, and must not block. Changes
// that reach the store without an event, such as the version of a bookmark, do not call it, so also
// ask from time to time. cancel ends it; f may be running then. Both may be called from anywhere.
//
// The first Notify for a write adds an event handler to the informer, which stays as long as the
// informer is declared anywhere.
func (g *Gap) Notify(f func()) (cancel func()) {
	w := &g.written
	if g.failing {
		w = nil
	}
	return g.informer.copy.Notify(w, g.open, f)
}

// open reports whether there is still something to wait for.
func (g *Gap) open() bool {
	if g.failing {
		return g.group.has(g.informer) && g.informer.fails()
	}
	if g.group.keeper(&g.written) != g.informer { // it has left the scope
		return false
	}
	v, _ := g.informer.copy.Shows(&g.written)
	return v == consistency.Behind
}

// Written is a state of an object that was written, as the API server has answered.
type Written = consistency.Write
