// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Effect is what has become of a write.
type Effect string

const (
	// Pending: no answer yet.
	Pending Effect = "pending"
	// Stored: the object is stored at the version of the Write.
	Stored Effect = "stored"
	// Unchanged: the object was as wanted; the version is one that was there before. What is called Stored may be that, too:
	// it is told only where the request named the version, or an earlier write in the same ledger made it.
	Unchanged Effect = "unchanged"
	// Deleting: a delete has marked the object; it is still there, at the version of the Write, until its finalizers or its
	// grace period are gone.
	Deleting Effect = "deleting"
	// Gone: the object is deleted, by a delete or by an update that has taken the last finalizer from it. The version, if
	// there is one, is that of the answer: of the deletion itself, or of the object before it.
	Gone Effect = "gone"
	// Accepted: the API server has done what was asked for; the answer does not tell what, or was not read. Unknown says
	// why.
	Accepted Effect = "accepted"
	// Uncertain: the request may or may not have been carried out: the connection broke, or the answer is a 5xx.
	Uncertain Effect = "uncertain"
)

// Write is a request that has changed an object, or may have. What the API server refused (3xx, 4xx, 501), what was never
// sent and dry runs are none.
type Write struct {
	Request

	// UID and ResourceVersion are the object's, as the API server said. A version is text: those of an API server of one's own
	// need not be numbers. Either may be empty; Unknown then says why. The items of a deletecollection are a Write each,
	// with the name, and have no version.
	UID             types.UID
	ResourceVersion string
	// Generation is metadata.generation, 0 if unknown.
	Generation int64
	// Effect is what has become of it.
	Effect Effect
	// Unknown is why UID, ResourceVersion or Effect cannot be told; else empty.
	Unknown string
	// Object is the object as answered, if [Origin].Decode asks for it: typed if the scheme knows its kind, else, if it is JSON,
	// unstructured; a PartialObjectMetadata if that was asked for. Nil if it cannot be decoded, is larger than 1 MiB, was not read
	// to its end, or if the answer is something else, such as a Scale or a Table. It is shared: do not change it.
	Object runtime.Object
	// Salt is set where hashes stand for what identifies the object: see [Write.Hashed].
	Salt Salt
}
