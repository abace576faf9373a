// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// eventHandler takes Records, so that an event is decoded only for a part that needs it.
type eventHandler struct {
	toolscache.ResourceEventHandlerDetailedFuncs
	merged func(before, after any, initial bool)
}

// OnMerged implements coalesce.Merged.
func (h eventHandler) OnMerged(before, after any, initial bool) { h.merged(before, after, initial) }

// TakesRecords implements storage.Handler.
func (eventHandler) TakesRecords() {}

// decoded returns an event for a handler or predicate, with the objects in their Go form if it
// needs more than metadata. It returns false for an object that cannot be decoded: the handle's
// State has the error.
func decoded(part any, e handler.Event) (handler.Event, bool) {
	before, old := e.Old.(storage.Record)
	after, current := e.New.(storage.Record)
	if !old && !current {
		return e, true
	}
	if m, ok := part.(interface{ MetadataOnly() bool }); ok && m.MetadataOnly() {
		return e, true
	}
	return decode(e, before, after)
}

func decode(e handler.Event, before, after storage.Record) (handler.Event, bool) {
	resync := e.Old == e.New
	if after != nil {
		n, err := after.Shared()
		if err != nil {
			return e, false
		}
		e.New = n
	}
	switch {
	case resync:
		e.Old = e.New
	case before != nil:
		o, err := before.Shared()
		switch {
		case err == nil:
			e.Old = o
		case e.New != nil: // as in a cache that never stored it
			e.Op, e.Old = handler.Create, nil
		default:
			e.Old = before.Outline()
		}
	}
	return e, true
}
