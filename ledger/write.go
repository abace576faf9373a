// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Effect is the result of a write.
type Effect string

const (
	// Pending: no answer yet.
	Pending Effect = "pending"
	// Stored: the object is stored at the Write's version.
	Stored Effect = "stored"
	// Unchanged: a no-op, at an earlier version. A no-op that is not recognized is Stored: see the
	// package doc.
	Unchanged Effect = "unchanged"
	// Deleting: marked for deletion at the Write's version, waiting for finalizers or the grace
	// period.
	Deleting Effect = "deleting"
	// Gone: deleted, or updated without its last finalizer. ResourceVersion is from the answer, if
	// it has one: the version of the deletion, or the last one before it.
	Gone Effect = "gone"
	// Accepted: the API server did what was asked. Unknown explains what the answer lacks.
	Accepted Effect = "accepted"
	// Uncertain: the connection broke or the answer is a 5xx. The write may have been carried out.
	Uncertain Effect = "uncertain"
)

// Write is a request that changed an object, or may have. A dry run, or a request that was refused
// (3xx, 4xx, 501) or not sent, is no Write.
type Write struct {
	Request

	// UID and ResourceVersion are from the answer. If either is empty, Unknown explains why. Items
	// of a deletecollection have a name and no version.
	UID             types.UID
	ResourceVersion string
	// Generation is metadata.generation, 0 if unknown.
	Generation int64
	// Effect is the write's result.
	Effect Effect
	// Made reports that the answer proves that this write made ResourceVersion: it created or
	// deleted the object, or replaced the version in the request. Without Made, the write may be a
	// no-op, and the version another client's.
	Made bool
	// Replaces is the resourceVersion in the request of an update or a patch without an answer, or
	// empty: such a write fails once the object has another version.
	Replaces string
	// Unknown explains why UID, ResourceVersion or Effect is unknown.
	Unknown string
	// Object is the object in the answer, if the controller asks for it: typed if the scheme has
	// its kind, else unstructured if it is JSON. It is a PartialObjectMetadata if the request asked
	// for that. Object is nil if it cannot be decoded, exceeds 1 MiB or was not read to its end,
	// and for a Scale or a Table. It is shared: do not change it.
	Object runtime.Object
}
