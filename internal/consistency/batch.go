// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Batch makes a Write all that another process has written of a resource: everything up to
// ResourceVersion, and some deletions. Without a Resource, it is of any resource.
type Batch struct {
	// Lost reports further writes that have no version.
	Lost bool
	// Deleted has the deleted objects. If the value is true, an object may still exist, with a
	// deletion timestamp.
	Deleted map[types.UID]bool
}

// judgeBatch is judge for a batch. An informer that has passed the version shows the batch, unless
// it still has a deleted object. An informer that selects objects may have no event at the version,
// so only a list decides. If objects were deleted, it is made a second later: the store may still
// have to see an object come and go.
func (view *View) judgeBatch(w *Write, at string) (Verdict, error) {
	passed := w.ResourceVersion == "" || object.AtLeast(at, w.ResourceVersion)
	comes := !view.selects() && number(at) && number(w.ResourceVersion)
	settling := len(w.Batch.Deleted) > 0 && time.Since(w.Answered) < doubt
	switch {
	case !view.Informer.HasSynced():
		return Behind, nil
	case w.Batch.Lost: // only a list decides
	case passed && view.lingering(w) == nil:
		return Shown, nil
	case passed, comes, settling:
		return Behind, nil
	}
	return Unclear, errors.New(view.Name + " must be compared with the API server")
}

// selects reports whether the informer may have no event for a change of its resource.
func (view *View) selects() bool {
	return view.Labels != nil || view.Fields != nil || view.Place != (types.NamespacedName{})
}

// Lingering returns the deletion in a batch of an object that the store still has, or w.
func (view *View) Lingering(w Write) Write {
	if w.Batch != nil {
		if o := view.lingering(&w); o != nil {
			w.Namespace, w.Name, w.UID = o.GetNamespace(), o.GetName(), o.GetUID()
			w.Marked = w.Batch.Deleted[w.UID]
			w.Gone, w.ResourceVersion, w.Batch = !w.Marked, "", nil
		}
	}
	return w
}

func (view *View) lingering(w *Write) object.Object {
	if len(w.Batch.Deleted) == 0 {
		return nil
	}
	for _, obj := range view.store().List() {
		o, ok := obj.(object.Object)
		if !ok {
			continue
		}
		if marked, deleted := w.Batch.Deleted[o.GetUID()]; deleted && (!marked || o.GetDeletionTimestamp() == nil) {
			return o
		}
	}
	return nil
}
