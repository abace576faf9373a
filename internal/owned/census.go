// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/slots"
)

// MostSampled is the number of keys in a Census.
const MostSampled = 16

// Census has the known keys whose hash is in a part of the ring of all hashes. It does not change
// after Slots.PutCensus.
type Census struct {
	// N is a number that each census of the controller increases, from 1.
	N uint64
	// From and To are the first and the last hash of the part.
	From, To uint64
	// Keys are all known keys in the part, from From on.
	Keys []Sampled
	// Serves reports whether the controller reconciles the keys of a slot now.
	Serves func(slots.Slot) bool
}

// Sampled is a key of a Census.
type Sampled struct {
	Hash uint64
	Slot slots.Slot
	Name types.NamespacedName
}

// NewCensus returns a census of no keys, of the whole ring.
func NewCensus(from uint64, serves func(slots.Slot) bool) *Census {
	return &Census{From: from, To: from - 1, Serves: serves}
}

// Covers reports whether the census has all known keys with this hash.
func (c *Census) Covers(hash uint64) bool { return hash-c.From <= c.To-c.From }

// Add adds the key of a known object. An object that was deleted and created again counts as
// another one: members may see this at different times. With too many keys, the census becomes one
// of a smaller part.
func (c *Census) Add(name types.NamespacedName, uid types.UID, slot slots.Slot) {
	hash := hashOf(name, uid)
	if !c.Covers(hash) {
		return
	}
	i, known := c.Find(hash)
	if known {
		return
	}
	c.Keys = slices.Insert(c.Keys, i, Sampled{hash, slot, name})
	c.limit(MostSampled)
}

// Limited returns a census of at most n keys, or nil if n is 0.
func (c *Census) Limited(n int) *Census {
	if n == 0 {
		return nil
	}
	of := *c
	of.limit(n)
	return &of
}

func (c *Census) limit(n int) {
	if len(c.Keys) > n {
		c.Keys = slices.Clip(c.Keys[:n])
		c.To = c.Keys[n-1].Hash
	}
}

// Find returns the place of a hash among the keys.
func (c *Census) Find(hash uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(c.Keys, hash, func(k Sampled, hash uint64) int {
		switch a, b := k.Hash-c.From, hash-c.From; {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
}

// hashOf is independent of slots, so that a sample has keys of many slots.
func hashOf(name types.NamespacedName, uid types.UID) uint64 {
	hash := uint64(0xcbf29ce484222325) // FNV-1a, without the copy that hash/fnv needs
	for _, part := range [...]string{name.Namespace, "\x00", name.Name, "\x00", string(uid)} {
		for i := range len(part) {
			hash = (hash ^ uint64(part[i])) * 0x100000001b3
		}
	}
	return Mixed(hash)
}

// Mixed is the finalizer of MurmurHash3 (fmix64, public domain). It is a bijection.
func Mixed(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
