// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Write is a write of an object, as the API server answered it, or with Event as a watch showed it.
type Write struct {
	// Host is the API server, such as https://10.0.0.1:6443, with the path of a proxy before /api
	// and /apis. Default: any.
	Host string
	// Resource is the written resource. Events of both API groups are the same.
	Resource schema.GroupResource
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
	// UID is the object's UID. Default: any.
	UID types.UID
	// ResourceVersion is the version that the write made, or the last known one before it. It may
	// be unknown only if Gone or Marked. Default: unknown.
	ResourceVersion string
	// Gone reports that the object was deleted. A store shows this if it has no object with that
	// name and UID. If ResourceVersion is set, the store must also have reached it.
	Gone bool
	// Marked reports that the object was deleted or got a deletion timestamp, at an unknown
	// version, as by a deletecollection or an eviction. A store shows this if it has no such
	// object, or one with a deletion timestamp.
	Marked bool
	// Sent and Answered are when the write began and when its answer was there at the latest.
	// Default: unknown.
	Sent, Answered time.Time
	// Verb and Replaces are as in a ledger.Write, for Resolve. Default: unknown.
	Verb, Replaces string
	// Unknown describes for errors why the version is unknown, such as "there was no answer".
	Unknown string
	// Subresource is the written subresource, whose object may lack the main one's labels.
	Subresource string
	// Object is the answer, for selectors: the object or its metadata. Default: unknown.
	Object runtime.Object
	// Batch makes it all writes of the resource, without a name. Default: nil, one write.
	Batch *Batch
	// In is the informer that must show it. Default: each that keeps the object.
	In *View
	// Event is set for a change that an informer has delivered. Default: nil, a request's write.
	Event *Event
}

// At returns the object's name in a store.
func (w *Write) At() types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}

func (w *Write) String() string {
	if w.Batch != nil {
		return cmp.Or(w.Resource.String(), "any resource")
	}
	return object.Name(w.At())
}

// is reports whether o is the written object, as far as the UID is known.
func (w *Write) is(o object.Object) bool {
	return w.UID == "" || o.GetUID() == w.UID
}

func number(version string) bool { return object.AtLeast(version, version) }
