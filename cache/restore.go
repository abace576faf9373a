// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// restoring is set while an informer has objects of an API server that was restored since. It is
// also an event handler, for the mark after the list.
type restoring struct {
	toolscache.ResourceEventHandlerFuncs

	informer *informer
	at       time.Time
	why      error
	mark     string
	handle   atomic.Pointer[toolscache.ResourceEventHandlerRegistration]
}

// Listed is called after each complete list.
func (i *informer) Listed() { i.env.relisted() }

// Delivered is called when the store has a list.
func (i *informer) Delivered() {
	// Forget objects that are no longer stored.
	i.intake.untransformed.Prune(i.intake.store())
	i.intake.unreadable.Prune(i.intake.store())
}

// Compared is called when versions are comparable after all.
func (i *informer) Compared() { i.view.Look() }

// Restored reports whether the informer is the first one to find it.
func (i *informer) Restored(why *listwatch.Restored) (now bool) { return i.env.restored(i, why) }

// restored is called when an informer has found out that the API server was restored. All other
// informers list again, too: their versions may not have gone back far enough to show it.
func (e *environment) restored(by *informer, why *listwatch.Restored) (first bool) {
	all := e.all()
	all = append([]*informer{by}, slices.DeleteFunc(all, func(i *informer) bool { return i == by })...)
	var replaced map[*informer]*restoring
	replaced, first = e.beginRestore(all, &restoring{
		at: time.Now(), why: fmt.Errorf("%w; this kind is listed again", why), mark: "/restored/" + strconv.FormatInt(time.Now().UnixNano(), 10),
	})
	if !first { // another informer was
		return false
	}
	within := by.lw.Spread()
	for n, i := range all {
		if i.lw == nil {
			i.outlive(why)
		} else {
			i.restore(replaced[i], within*time.Duration(n)/time.Duration(len(all)))
		}
	}
	e.hook.Send(&hook.Restored{Host: hostOf(e.backend), Kind: by.key.kind(), Err: why, Informers: len(all), Within: within})
	return true
}

// beginRestore marks all informers, unless the first one is marked already. It returns their former
// marks.
func (e *environment) beginRestore(all []*informer, as *restoring) (former map[*informer]*restoring, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if all[0].restoring.Load() != nil {
		return nil, false
	}
	former = map[*informer]*restoring{}
	for _, i := range all {
		if i.lw != nil {
			former[i] = i.restoring.Swap(&restoring{informer: i, at: as.at, why: as.why, mark: as.mark})
		}
	}
	return former, true
}

// restore makes the informer list again after a pause. former is what it was waiting for.
func (i *informer) restore(former *restoring, after time.Duration) {
	if former != nil {
		former.end()
	}
	r := i.restoring.Load()
	if r == nil {
		return
	}
	// It fails only if the informer has stopped.
	handle, _ := i.shared.AddEventHandlerWithOptions(r, toolscache.HandlerOptions{ResyncPeriod: new(time.Duration)})
	r.handle.Store(&handle)
	if i.HasSynced() {
		i.set(hook.Failing, r.why)
	}
	i.lw.Relist(after, i.mark(r.mark))
}

// end removes the event handler.
func (r *restoring) end() {
	if handle := r.handle.Load(); handle != nil && *handle != nil {
		_ = r.informer.shared.RemoveEventHandler(*handle)
	}
}

// OnMark is called when the store has the list.
func (r *restoring) OnMark(mark string) {
	i := r.informer
	if mark != r.mark || !i.restoring.CompareAndSwap(r, nil) {
		return
	}
	r.end()
	i.view.Reset(r.at)
	i.env.relisted()
	if _, _, err := i.last(); errors.Is(err, r.why) {
		i.Report(hook.Syncing, nil)
	}
}

// outlive reports that an adopted informer may have what does not exist any more. Only the host
// program can replace it.
func (i *informer) outlive(why *listwatch.Restored) {
	at := i.shared.GetStore().LastStoreSyncResourceVersion()
	if object.Before(at, why.Version) {
		return // it had nothing later than the backup
	}
	i.outlived.Store(&at)
	i.set(hook.Failing, fmt.Errorf("%w; an adopted informer cannot be made to list again, so restart the program", why))
}

// hasOutlived reports whether an adopted informer still has the data of an API server that was
// restored: its version has not gone back.
func (i *informer) hasOutlived() bool {
	at := i.outlived.Load()
	return at != nil && !object.Before(i.shared.GetStore().LastStoreSyncResourceVersion(), *at)
}

// wentBack reports whether a version is from before a restore of the API server: the store has a
// later list, at an earlier version.
func (i *informer) wentBack(version string) bool {
	back := object.Before(i.shared.GetStore().LastStoreSyncResourceVersion(), version)
	return back && i.view.HasReset() && i.restoring.Load() == nil
}

// Doubts reports whether versions may not be comparable: the API server was restored, or the answer
// of a write shows that it may have been.
func (i *informer) Doubts(w *consistency.Write) bool {
	if i.restoring.Load() != nil {
		return true
	}
	if i.lw == nil || w.Answered.IsZero() || i.view.WasReset(w) {
		return false
	}
	i.lw.Wrote(w.ResourceVersion, w.Answered)
	if w.Gone || w.Marked || !i.lw.Contradicts(w.ResourceVersion, w.Sent, w.Answered) {
		return false
	}
	// The answer of a no-op has the object's version, however old.
	if s := i.view.Stored(w); s != nil && s.GetResourceVersion() == w.ResourceVersion || s == nil && i.view.Excludes(w) {
		return false
	}
	i.lw.Doubt()
	return true
}
