// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"cmp"
	"fmt"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Verdict is the answer of Shows.
type Verdict uint8

const (
	Shown   Verdict = iota
	Behind          // not shown yet, perhaps until the informer recovers
	Unclear         // undecidable, or the informer does not run
)

// Shows reports whether the informer shows a write. For Unclear, the error is the reason.
func (view *View) Shows(w *Write) (Verdict, error) {
	// No read is answered before the first list is complete.
	synced := view.Informer.HasSynced() && !view.Informer.Joins(w) && !view.Informer.Doubts(w)
	at := view.version()
	if synced && !w.Gone && !w.Marked && w.Batch == nil && object.AtLeast(at, w.ResourceVersion) {
		return Shown, nil
	}
	v, why := view.judge(w, at)
	if view.WasReset(w) {
		v, why = Shown, nil
	}
	if v == Shown && synced {
		return Shown, nil
	}
	switch view.Informer.Phase() {
	case hook.Synced, hook.Syncing:
		if v == Shown {
			v = Behind
		}
		return v, why
	case hook.Failing, hook.Waiting:
		return Behind, nil // even what is unclear now may be clear after the relist
	default:
		return Unclear, fmt.Errorf("%s does not run and cannot show the write of %s: %s", view.Name, w.String(), view.Informer.Standing())
	}
}

// judge is Shows for a synced informer that follows the API server.
func (view *View) judge(w *Write, at string) (Verdict, error) {
	if w.Batch != nil {
		return view.judgeBatch(w, at)
	}
	for _, version := range [...]string{at, w.ResourceVersion} {
		if version != "" && !number(version) {
			return view.judgeByName(w, version)
		}
	}
	stored := view.Stored(w)
	if w.Event != nil {
		return view.judgeEvent(w, at, stored), nil
	}
	if w.Gone || w.Marked {
		return view.judgeEnd(w, at, stored)
	}
	switch {
	case w.ResourceVersion == "":
		reason := cmp.Or(w.Unknown, "its version is not known")
		return Unclear, fmt.Errorf("unclear whether %s shows the write of %s: %s", view.Name, w.String(), reason)
	case stored == nil && view.Excludes(w):
		return Shown, nil
	case stored == nil:
		return Behind, nil
	case object.AtLeast(stored.GetResourceVersion(), w.ResourceVersion):
		return Shown, nil // a newer object with another UID came after it
	default:
		return Behind, nil
	}
}

func (view *View) judgeEnd(w *Write, at string, stored object.Object) (Verdict, error) {
	switch {
	case stored != nil && w.is(stored):
		if w.Marked && stored.GetDeletionTimestamp() != nil {
			return Shown, nil
		}
		if err := view.Informer.Undecodable(w.At()); w.Marked && err != nil {
			return Unclear, fmt.Errorf("%s cannot show that %s is marked for deletion: %w", view.Name, w.String(), err)
		}
		return Behind, nil
	case w.ResourceVersion == "", at == "", object.AtLeast(at, w.ResourceVersion), view.Excludes(w):
		return Shown, nil
	default:
		return Behind, nil // it may not have arrived yet
	}
}

func (view *View) judgeByName(w *Write, version string) (Verdict, error) {
	stored := view.Stored(w)
	there := stored != nil && w.is(stored)
	switch {
	case !w.Gone && !w.Marked && there && stored.GetResourceVersion() == w.ResourceVersion:
		return Shown, nil
	case w.Marked && there && stored.GetDeletionTimestamp() != nil:
		return Shown, nil
	case (w.Gone || w.Marked) && w.ResourceVersion == "" && !there:
		return Shown, nil
	}
	return Unclear, fmt.Errorf("unclear whether %s shows the write of %s: the version %q is not a number", view.Name, w.String(), version)
}
