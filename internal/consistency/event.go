// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Event makes a Write a change that one informer has delivered, and that others may not show yet.
type Event struct {
	// At is when the informer delivered it.
	At time.Time
	// By is the scope that has the informer.
	By any
	// Leaves reports that a deletion may also mean that the object no longer matches the
	// informer's selectors.
	Leaves bool
	// Missed reports that a list revealed the deletion. ResourceVersion is then the last known one
	// before it.
	Missed bool
}

// doubt limits the wait for an informer that may be unable to show the object at all.
const doubt = time.Second

// judgeEvent is judge for an event of another informer.
func (view *View) judgeEvent(w *Write, at string, stored object.Object) Verdict {
	switch {
	case w.Gone && !w.Event.Missed && object.AtLeast(at, w.ResourceVersion):
		return Shown // a restore may bring it back
	case stored != nil && (!w.Gone || w.is(stored)):
		version := stored.GetResourceVersion()
		if object.AtLeast(version, w.ResourceVersion) && (!w.Event.Missed || version != w.ResourceVersion) {
			return Shown
		}
		return Behind
	case w.Gone && !w.Event.Leaves, object.AtLeast(at, w.ResourceVersion), view.Excludes(w):
		return Shown
	case !view.keeps(w) && time.Since(w.Event.At) >= doubt:
		return Shown
	default:
		return Behind
	}
}

// keeps reports whether the informer certainly keeps the object of an event, or has passed it soon.
func (view *View) keeps(w *Write) bool {
	switch {
	case view.Foreign:
		return false
	case view.Labels == nil && view.Fields == nil && !view.Slots:
		return true
	case w.Gone || w.Object == nil:
		return false
	}
	o, ok := w.Object.(object.Object)
	if !ok || view.Fields == nil {
		return ok
	}
	f := fieldsOf{meta: o, object: o, gvk: view.Kind}
	return !slices.ContainsFunc(view.Fields.Requirements(), func(r fields.Requirement) bool {
		_, known := f.value(r)
		return !known
	})
}

// Resource returns the most likely resource of the informer.
func (view *View) Resource() schema.GroupResource {
	if m := view.Mapping.Load(); m != nil {
		return m.Resource.GroupResource()
	}
	if known := view.learned.Load(); known != nil {
		return *known
	}
	return view.Guess
}
