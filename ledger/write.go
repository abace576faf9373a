// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Content describes the object of an answer without Made, and of others if [Origin].Prove is
	// set: then it describes the request before the answer, too. It is nil if the answer or the
	// request cannot be read.
	Content *Content
	// Replaces is the resourceVersion in the request of an update or a patch without an answer, or
	// empty: such a write fails once the object has another version.
	Replaces string
	// Unknown explains why UID, ResourceVersion or Effect is unknown.
	Unknown string
	// Object is the object in the answer, if [Origin].Decode asks for it: typed if the scheme has
	// its kind, else unstructured if it is JSON. It is a PartialObjectMetadata if the request asked
	// for that. Object is nil if it cannot be decoded, exceeds 1 MiB or was not read to its end,
	// and for a Scale or a Table. It is shared: do not change it.
	Object runtime.Object
	// Salt is set if hashes replace the object's identity, see [Write.Hashed].
	Salt Salt
}

// Content describes an object in an answer with hashes of its fields, so that two answers can be
// compared without keeping the objects. It is shared: do not change it.
type Content struct {
	// Object has a hash of path and value of each field, without version, generation and managed
	// fields. It is nil without an answer.
	Object []uint64
	// Request has the same for the request.
	Request []uint64
	// Shape is a hash of the paths in the request.
	Shape uint64
}

// Salt makes the hashes of two releases incomparable. It is stored next to them and is not secret.
type Salt string

// NewSalt returns a random salt of 128 bits.
func NewSalt() Salt { return Salt(rand.Text()) }

// hashBytes is a multiple of 3, so that base64 needs no padding.
const hashBytes = 9

// Hash returns the first 9 bytes of the SHA-256 of salt, sort and text in base64, or "" for an
// empty text. sort keeps the hashes of different fields apart, see [Write.Hashed].
func (s Salt) Hash(sort, text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(string(s) + "\x00" + sort + "\x00" + text))
	return base64.RawURLEncoding.EncodeToString(sum[:hashBytes])
}

// Hashed returns the write with hashes instead of the object's identity, and only the labels of
// Object. A hashed write is returned unchanged.
//
//	field      sort       hash of
//	Namespace  namespace  the namespace
//	Name       name       namespace/name, or the name if cluster-scoped
//	UID        uid        the UID
//	labels     label      the key
//	           value      key=value
func (w *Write) Hashed(s Salt) Write {
	h := *w
	if w.Salt != "" {
		return h
	}
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + w.Name
	}
	h.Salt, h.Object, h.Content = s, nil, nil
	h.Namespace, h.Name = s.Hash("namespace", w.Namespace), s.Hash("name", name)
	h.UID = types.UID(s.Hash("uid", string(w.UID)))
	if o, ok := w.Object.(metav1.Object); ok {
		labels := map[string]string{}
		for key, value := range o.GetLabels() {
			labels[s.Hash("label", key)] = s.Hash("value", key+"="+value)
		}
		h.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name, Labels: labels}}
	}
	return h
}
