// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"

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
	// Hashed is the Hasher of Namespace, Name, UID, and the keys and values of Object's labels.
	// Object then has only labels. See Locate. Default: nil, nothing is hashed.
	Hashed Hasher
	// Event is set for a change that an informer has delivered. Default: nil, a request's write.
	Event *Event

	found types.NamespacedName // set by Locate
}

// At returns the object's name in a store.
func (w *Write) At() types.NamespacedName {
	if w.Hashed != nil {
		return w.found
	}
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}

func (w *Write) String() string {
	if w.Hashed != nil && w.found == (types.NamespacedName{}) {
		return "an object with the hash " + w.Name
	}
	return storeKey(w.At())
}

// is reports whether o is the written object, as far as the UID is known.
func (w *Write) is(o object.Object) bool {
	if w.UID == "" || o.GetUID() == w.UID {
		return true
	}
	return w.Hashed != nil && w.Hashed.Hash("uid", string(o.GetUID())) == string(w.UID)
}

// In reports whether a place, a namespace or one object, contains the object.
func (w *Write) In(p types.NamespacedName) bool {
	switch {
	case w.Hashed == nil:
		return p.Namespace == w.Namespace && (p.Name == "" || p.Name == w.Name)
	case p.Name != "":
		return w.Hashed.Hash("name", storeKey(p)) == w.Name
	default:
		return w.Hashed.Hash("namespace", p.Namespace) == w.Namespace
	}
}

func storeKey(name types.NamespacedName) string { return toolscache.ObjectName(name).String() }

// Hasher hashes text of one sort: "namespace", "name" (namespace/name, or the name if
// cluster-scoped), "uid", "label" (a key) or "value" (key=value). The empty text has an empty hash.
// Equal (==) Hashers return the same hashes.
type Hasher interface {
	Hash(sort, text string) string
}

// past reports whether version a is b or later. It returns false if one is not a number.
func past(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c >= 0
}

func number(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}
