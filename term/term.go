// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// Token identifies one term of leadership: the Lease, and its version at acquisition. Of two tokens
// of one Lease the one with the higher version is the newer. A Lease that was deleted and created
// again has another UID, and higher versions. (leaseTransitions does not serve: it starts over with
// a new Lease, and does not count an elector that takes a Lease twice in a row.)
type Token struct {
	Lease           types.UID
	ResourceVersion string
	// Holder is the identity in the Lease (spec.holderIdentity), which a ValidatingAdmissionPolicy can
	// compare with an annotation.
	Holder string
}

// String returns the UID, an @, and the version.
func (t Token) String() string { return string(t.Lease) + "@" + t.ResourceVersion }

// Term is one term of leadership. It is trusted for a stated time from when the last successful
// renewal of its Lease was sent. Requests whose context carries it ([With]) pass the fence only
// while it is trusted. It is safe for concurrent use. The holder of the Lease makes it, extends it
// and ends it.
type Term struct {
	fence

	token     Token
	made      time.Time
	inherited *Handover
	trail     trail
}

// New makes a term that is trusted for a time from start, the [time.Now] at which the request was
// sent that acquired the Lease: others count from when they see it written, which is later. Call
// End when the term is over.
func New(token Token, start time.Time, trusted time.Duration) *Term {
	return &Term{
		fence: fence{
			name: token.String(), done: make(chan struct{}),
			trust: trust{limit: trusted}, start: start, waiting: map[*passage]struct{}{},
		},
		token: token, made: time.Now(),
	}
}

// Token returns the token that was given to New.
func (t *Term) Token() Token { return t.token }

// String returns the token as text.
func (t *Term) String() string { return t.token.String() }

// handedOn is for how long a term hands on what it has inherited itself. By then every informer
// shows it, or none ever will.
const handedOn = time.Minute

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
