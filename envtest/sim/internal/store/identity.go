// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Identify gives a new object its uid, its creation time and, if requested, its name.
func (s *Store) Identify(t *Table, u *unstructured.Unstructured) {
	if u.GetUID() == "" {
		u.SetUID(s.NewUID())
	}
	u.SetCreationTimestamp(metav1.Now())
	prefix := u.GetGenerateName()
	if prefix == "" || u.GetName() != "" {
		return
	}
	const longest = 63 - suffixLength
	if len(prefix) > longest {
		prefix = prefix[:longest]
	}
	for range 8 {
		s.names++
		u.SetName(prefix + suffix(s.names))
		if t.Objects[KeyOf(u)] == nil {
			return
		}
	}
}

// NewUID returns the next uid: a counter in the form of a UUID, so that tests repeat. Its
// first digits differ much from one to the next, as in random UUIDs.
func (s *Store) NewUID() types.UID {
	s.uids++
	return uidOf(s.uids, 8)
}

// uidOf returns the n-th uid of a family.
func uidOf(n, family int) types.UID {
	return types.UID(fmt.Sprintf("%08x-0000-4000-%x000-%012x", uint32(n)*0x9e3779b1, family, n)) //nolint:gosec // it may wrap
}

// NewReviewUID returns the uid of a review that a webhook answers. It is no object's.
func (s *Store) NewReviewUID() types.UID {
	s.reviews++
	return uidOf(s.reviews, 9)
}

const (
	suffixLength   = 5
	suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789" // the real server's
)

// suffix returns the n-th suffix of generated names. It repeats after 27^5 names.
func suffix(n int) string {
	const period, step = 27 * 27 * 27 * 27 * 27, 8_675_309 // step is coprime to 27
	n = n % period * step % period
	var b [suffixLength]byte
	for i := range b {
		b[i] = suffixAlphabet[n%len(suffixAlphabet)]
		n /= len(suffixAlphabet)
	}
	return string(b[:])
}
