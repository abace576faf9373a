// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/ledger"
)

// MaxHandedOver is how many writes a term hands over at most. An informer that shows a write shows
// all earlier ones of the same resource, so what is left out is hardly ever missed.
const MaxHandedOver = 100

// handedOn is for how long a term hands on what it has inherited itself. By then every informer
// shows it, or none ever will.
const handedOn = time.Minute

// Handover is what a released term of leadership leaves to the next one.
type Handover struct {
	// Holder is who released the Lease, and Released when, by its own clock.
	Holder   string
	Released time.Time
	// Writes are the newest of the term and of those before it, one for each object, oldest first.
	// Each has the object, the Host, the UID, the highest version and the Effect: Stored, Gone, or
	// Accepted, which is gone or marked for deletion. Verb is update or delete, whatever it was.
	// Object is nil, or a PartialObjectMetadata with the labels. What was read from a Lease is
	// hashed: see [ledger.Write.Hashed].
	Writes []ledger.Write
	// Unknown is how many more writes there were that the next term cannot wait for: their effect is
	// not known, or the Lease had no room for them.
	Unknown int
}

// Inherit sets what the term before has left. The maker of the term calls it once, before anything
// else uses the term.
func (t *Term) Inherit(h Handover) {
	t.inherited = &h
	for i := range h.Writes {
		t.trail.note(&h.Writes[i])
	}
	for e := t.trail.order.Front(); e != nil; e = e.Next() {
		stepOf(e).inherited = true
	}
}

// Inherited returns what the term before has left. It is nil if there was no term before, or it was
// not released by an elector of this module. Do not change it: it is shared. L9 depends on it, see
// package controller.
func (t *Term) Inherited() *Handover { return t.inherited }

// Wrote records a write that was made under the term. The transport calls it when a request with a
// ledger was answered.
func (t *Term) Wrote(w *ledger.Write) { t.trail.note(w) }

// Written returns the writes that the next term has to know: those of this term and, in its first
// minute, of the terms before it. unknown counts the writes whose effect is not known.
func (t *Term) Written() (writes []ledger.Write, unknown int) {
	r := &t.trail
	r.mu.Lock()
	defer r.mu.Unlock()
	late := time.Since(t.made) > handedOn
	for _, e := range r.newestLocked() {
		if late && stepOf(e).inherited {
			continue
		}
		writes = append(writes, stepOf(e).toWrite())
	}
	writes = withoutRenewed(writes)
	slices.Reverse(writes)
	return writes, r.unknown
}

// withoutRenewed leaves out the hashed writes, which are inherited, of objects that this term has
// written again. A deletion is final and stays.
func withoutRenewed(writes []ledger.Write) (kept []ledger.Write) {
	again := map[ledger.Salt]map[object]bool{}
	for i := range writes {
		w := &writes[i]
		if w.Salt != "" && again[w.Salt] == nil {
			again[w.Salt] = map[object]bool{}
			for j := range writes {
				if writes[j].Salt == "" {
					h := writes[j].Hashed(w.Salt)
					again[w.Salt][objectOf(&h)] = true
				}
			}
		}
		if w.Salt == "" || w.Effect == ledger.Gone || !again[w.Salt][objectOf(w)] {
			kept = append(kept, *w)
		}
	}
	return kept
}
