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

// Effect is what a write has done.
type Effect string

const (
	// Pending: no answer yet.
	Pending Effect = "pending"
	// Stored: the object is stored at the version of the Write.
	Stored Effect = "stored"
	// Unchanged: a no-op; the version is an earlier one. It is known only if the request named the
	// version, or an earlier write in the same ledger made it. Other no-ops are Stored.
	Unchanged Effect = "unchanged"
	// Deleting: the object is marked for deletion, at the version of the Write. It waits for its
	// finalizers or its grace period.
	Deleting Effect = "deleting"
	// Gone: the object is deleted, by a delete or by an update that removed the last finalizer. The
	// version, if any, is that of the answer: of the deletion, or of the object before it.
	Gone Effect = "gone"
	// Accepted: the API server has done what was asked for. Unknown says why the answer does not tell
	// more.
	Accepted Effect = "accepted"
	// Uncertain: the request may or may not have been carried out: the connection broke, or the answer
	// is a 5xx.
	Uncertain Effect = "uncertain"
)

// Write is a request that has changed an object, or may have. Requests that the API server refused
// (3xx, 4xx, 501), that were never sent, and dry runs are none.
type Write struct {
	Request

	// UID and ResourceVersion are the object's, from the answer. Either may be empty; Unknown then says
	// why. Each item of a deletecollection is a Write with a name and without a version.
	UID             types.UID
	ResourceVersion string
	// Generation is metadata.generation, 0 if unknown.
	Generation int64
	// Effect is what the write has done.
	Effect Effect
	// Unknown is why UID, ResourceVersion or Effect is not known, else empty.
	Unknown string
	// Object is the object in the answer, if [Origin].Decode asks for it: typed if the scheme knows its
	// kind, or unstructured if it is JSON, or a PartialObjectMetadata if that was asked for. It is nil
	// if it cannot be decoded, has more than 1 MiB, was not read to its end, or is something else, such
	// as a Scale or a Table. It is shared: do not change it.
	Object runtime.Object
	// Salt is set if hashes replace what identifies the object: see [Write.Hashed].
	Salt Salt
}

// Salt makes the hashes of two releases incomparable. It is stored next to them, and not secret.
type Salt string

// NewSalt returns a random salt of 128 bits.
func NewSalt() Salt { return Salt(rand.Text()) }

// hashBytes is the length of a hash: short, and a multiple of 3, so that base64 needs no padding.
const hashBytes = 9

// Hash returns the salted hash of a text of one sort, such as "name": the first 9 bytes of a SHA-256,
// as 12 characters of base64. [Write.Hashed] lists the sorts. An empty text has an empty hash.
func (s Salt) Hash(sort, text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(string(s) + "\x00" + sort + "\x00" + text))
	return base64.RawURLEncoding.EncodeToString(sum[:hashBytes])
}

// Hashed returns the write with hashes in place of what identifies the object:
//
//	Namespace       the hash of the sort "namespace"
//	Name            of the sort "name", of namespace/name, or of the name if cluster-scoped
//	UID             of the sort "uid"
//	labels          of the sorts "label", of the key, and "value", of key=value
//
// Object keeps only the labels. A write that is hashed already is returned unchanged.
func (w *Write) Hashed(s Salt) Write {
	h := *w
	if w.Salt != "" {
		return h
	}
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + w.Name
	}
	h.Salt, h.Object = s, nil
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
