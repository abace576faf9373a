// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package contextkey has the keys of contexts that several packages share.
package contextkey

// Ledger is the key of the ledger of a context. A context type may create the ledger for the first
// request. Its value is a *journal.Journal or NoLedger.
type Ledger struct{}

// NoLedger is the value of Ledger in a context that has none on purpose.
type NoLedger struct{}
