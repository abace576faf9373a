// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
