// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package contextkey has the keys of contexts that several packages share.
package contextkey

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Ledger is the key of the ledger of a context. A context type may create the ledger for the first
// request. Its value is a *journal.Journal or NoLedger.
type Ledger struct{}

// NoLedger is the value of Ledger in a context that has none on purpose.
type NoLedger struct{}

// Reads is the key of what gets the reads of caches with a context. Its value is a Reader.
type Reads struct{}

// Notes is the key of what keeps the notes of a Reconcile. Its value is a Noter.
type Notes struct{}

// Noter is safe for concurrent use.
type Noter interface {
	// Note keeps a sentence about the key, which package why shows until the next Reconcile.
	Note(text string)
}

// Reader is safe for concurrent use.
type Reader interface {
	// Read gets a read of one object, as the cache stores it: nil if there is none. The name is
	// empty for a list.
	Read(kind schema.GroupVersionKind, name types.NamespacedName, stored any)
}
