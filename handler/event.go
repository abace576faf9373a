// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Op is what happened to an object.
type Op string

const (
	// Create: the object is new to this process, as are all objects of the initial list.
	Create Op = "create"
	// Update: the object changed, or a resync brought it again unchanged.
	Update Op = "update"
	// Delete: the object is gone.
	Delete Op = "delete"
)

// Object is a pointer to an API type, such as *corev1.Pod.
type Object = object.Object

// Event is one change of one object.
type Event struct {
	// Op is what happened.
	Op Op
	// Old is the state before the event, nil for a Create.
	Old Object
	// New is the state after it: nil for a Delete, Old itself for a resync.
	New Object
	// Initial marks a Create from the initial list.
	Initial bool
	// Stale marks a Delete that was missed and found out later. Old may lack the last changes.
	Stale bool
}

// Object returns New, or Old for a Delete.
func (e Event) Object() Object {
	if e.New != nil {
		return e.New
	}
	return e.Old
}

// states returns the event's states, the old one first. A resync has one.
func (e Event) states() []Object {
	switch {
	case e.Old == nil:
		return []Object{e.New}
	case e.New == nil || e.Old == e.New:
		return []Object{e.Old}
	default:
		return []Object{e.Old, e.New}
	}
}

// Key returns the namespace and name of the event's object.
func (e Event) Key() types.NamespacedName { return object.Key(e.Object()) }
