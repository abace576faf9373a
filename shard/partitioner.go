// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// Partitioner maps keys to slots. The zero value is ByKey. All members of a group must use the same
// one: its name is stored in the assignment, and a member with another one is refused.
//
// The hash is FNV-1a 64 of a text, mixed by the finalizer of MurmurHash3; the slot is its highest
// byte. Without the mixing, names that differ only in their last characters share a slot.
type Partitioner struct {
	name  string
	text  func(types.NamespacedName) string
	calls *atomic.Uint64 // of text, if it is the user's
}

// checkEvery is the number of keys from one for which the user's function is called twice to the
// next one.
const checkEvery = 1000

// ByKey spreads keys by namespace and name.
func ByKey() Partitioner { return Partitioner{} }

// ByNamespace keeps the keys of a namespace in one slot. Objects without a namespace share a slot.
func ByNamespace() Partitioner {
	return Partitioner{name: "namespace", text: func(k types.NamespacedName) string { return k.Namespace }}
}

// ByName keeps the keys with the same name in one slot, whatever their namespace.
func ByName() Partitioner {
	return Partitioner{name: "name", text: func(k types.NamespacedName) string { return k.Name }}
}

// ByFunc hashes the text that f returns. f must return the same text for a key in every process and
// release: see shardtest.CheckBy. Change the name when f changes: members with another name are
// refused. f may be called concurrently.
func ByFunc(name string, f func(types.NamespacedName) string) Partitioner {
	return Partitioner{name: "func " + name, text: f, calls: new(atomic.Uint64)}
}

// String returns the name that is stored in the assignment.
func (b Partitioner) String() string {
	return cmp.Or(b.name, "namespace/name") + " fnv1a64-fmix64 " + strconv.Itoa(slots.Slots)
}

// Slot returns the slot of a key. It fails only if a ByFunc function is nil, panics, or returns
// different texts in two calls. For the first key and every 1,000th, it calls the function twice.
func (b Partitioner) Slot(key types.NamespacedName) (uint8, error) {
	if b.calls == nil {
		text := key.Namespace + "/" + key.Name
		if b.text != nil {
			text = b.text(key)
		}
		return b.slotOf(text), nil
	}
	text, err := b.call(key)
	if err == nil && b.calls.Add(1)%checkEvery == 1 {
		var second string
		if second, err = b.call(key); err == nil && second != text {
			err = fmt.Errorf("shard: the function of %q returns %q and then %q for %s; it must depend on the key only", b, text, second, key)
		}
	}
	return b.slotOf(text), err
}

func (b Partitioner) call(key types.NamespacedName) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("shard: the function of %q panics for %s: %v; it must return a text for every key", b, key, p)
		}
	}()
	return b.text(key), nil
}

func (b Partitioner) slotOf(text string) uint8 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // it cannot fail
	return uint8(fmix64(h.Sum64()) >> 56)
}

// fmix64 is the finalizer of MurmurHash3 (fmix64, public domain). It is a bijection.
func fmix64(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
