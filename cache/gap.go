// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"sync"
	"sync/atomic"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
)

// Gap is an informer that does not show yet what was written. Declarations.Behind returns one.
type Gap struct {
	informer *informer
	scope    *Scope
	written  Written
}

// String says which informer does not show what, and where it is.
func (g *Gap) String() string {
	i, w := g.informer, &g.written
	what, at := "the write", ""
	if w.Gone || w.Marked {
		what = "the deletion"
	}
	if w.ResourceVersion != "" {
		at = " at " + w.ResourceVersion
	}
	name := i.key.kind()
	if words := i.key.String(); words != "" {
		name += " (" + words + ")"
	}
	where := "is not synced"
	if phase, _, _ := i.at(); phase != hook.Syncing {
		where = "is at version " + i.shared.GetStore().LastStoreSyncResourceVersion()
	}
	return fmt.Sprintf("%s %s and does not show %s of %s%s", name, where, what, w, at)
}

// Notify has f called when the informer may show what was written, or when waiting has become no use: ask Behind again then. f
// is called at most once, off all locks, perhaps before Notify returns, and must not block. It is not called for what reaches the
// store without an event, such as a version in a bookmark, so who waits also looks from time to time. cancel ends it; f may be
// running then. Both may be called from anywhere.
func (g *Gap) Notify(f func()) (cancel func()) {
	i := g.informer
	w := &waiter{gap: g, f: f}
	i.waiters.add(w)
	if !i.listen() {
		i.waiters.wake()
	} else if v, _ := i.shows(&g.written, g.scope); v != behind && i.waiters.remove(w) {
		f()
	}
	return func() { i.waiters.remove(w) }
}

// waiter is one who waits for an informer to show something.
type waiter struct {
	gap *Gap
	f   func()
}

// waiters is who waits for an informer. It costs an event nothing as long as there is nobody.
type waiters struct {
	informer *informer
	n        atomic.Int64 // how many; changed under the mutex
	once     sync.Once    // registers it with the informer
	heard    bool         // set by once

	mu  sync.Mutex // guards what follows
	all map[*waiter]struct{}
}

// listen registers for the events of the informer, and says whether there will be any.
func (i *informer) listen() bool {
	w := &i.waiters
	w.once.Do(func() {
		w.informer = i
		_, err := i.shared.AddEventHandlerWithOptions(w, toolscache.HandlerOptions{})
		w.heard = err == nil
	})
	return w.heard
}

func (w *waiters) add(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*waiter]struct{}{}
	}
	w.all[one] = struct{}{}
	w.n.Add(1)
}

// remove says whether it was still there.
func (w *waiters) remove(one *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, there := w.all[one]
	if there {
		delete(w.all, one)
		w.n.Add(-1)
	}
	return there
}

func (w *waiters) list() []*waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*waiter, 0, len(w.all))
	for one := range w.all {
		all = append(all, one)
	}
	return all
}

// wake calls everybody.
func (w *waiters) wake() {
	for _, one := range w.list() {
		if w.remove(one) {
			one.f()
		}
	}
}

// look calls those who have nothing to wait for any more.
func (w *waiters) look() {
	if w.n.Load() == 0 {
		return
	}
	for _, one := range w.list() {
		if v, _ := w.informer.shows(&one.gap.written, one.gap.scope); v != behind && w.remove(one) {
			one.f()
		}
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (w *waiters) OnAdd(any, bool) { w.look() }

// OnUpdate implements toolscache.ResourceEventHandler.
func (w *waiters) OnUpdate(_, _ any) { w.look() }

// OnDelete implements toolscache.ResourceEventHandler.
func (w *waiters) OnDelete(any) { w.look() }
