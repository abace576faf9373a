// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Salt makes the hashes of one release incomparable with those of another. It is not secret: it is
// stored next to the hashes.
type Salt string

// NewSalt returns a random salt of 128 bits.
func NewSalt() Salt { return Salt(rand.Text()) }

// hashBytes is the length of a hash: short, and a multiple of 3, so that base64 needs no padding.
const hashBytes = 9

// Hash returns the salted hash of a text of one sort, such as "name": the first 9 bytes of a SHA-256,
// as 12 characters of base64. [Write.Hashed] lists the sorts. The hash of the empty text is empty.
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
// Object keeps nothing but the labels. A write that is hashed already is returned as it is.
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
	if w.Object == nil {
		return h
	}
	if o, err := meta.Accessor(w.Object); err == nil {
		labels := map[string]string{}
		for key, value := range o.GetLabels() {
			labels[s.Hash("label", key)] = s.Hash("value", key+"="+value)
		}
		h.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name, Labels: labels}}
	}
	return h
}
