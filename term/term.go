// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// Token identifies one term of leadership: the Lease, and its version at acquisition. Of two tokens
// of one Lease the one with the higher version is the newer. A Lease that was deleted and created
// again has another UID, and higher versions. (leaseTransitions starts over with a new Lease, and
// does not count an elector that takes a Lease twice in a row.)
type Token struct {
	Lease           types.UID
	ResourceVersion string
	// Holder is the identity in the Lease (spec.holderIdentity), which a ValidatingAdmissionPolicy can
	// compare with an annotation.
	Holder string
}

// String returns the UID, an @, and the version.
func (t Token) String() string { return string(t.Lease) + "@" + t.ResourceVersion }

// Term is one term of leadership. It is trusted for some time after the last successful renewal of its
// Lease was sent. Requests whose context carries it ([With]) pass the fence only while it is trusted.
// It is safe for concurrent use. The holder of the Lease makes it, extends it and ends it.
type Term struct {
	fence

	token     Token
	made      time.Time
	inherited *Handover
	trail     trail // guarded by the fence's mutex, which may be taken under a ledger's
}

// New makes a term that is trusted for a time from start, the [time.Now] at which the request was
// sent that acquired the Lease. Other electors count from when they see it, which is later. Call End
// when the term is over.
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

// handedOn is how long a term hands on what it has inherited. By then every informer shows it, or none
// ever will.
const handedOn = time.Minute

// Inherit sets what the previous term has left. The maker of the term calls it once, before anything
// else uses the term.
func (t *Term) Inherit(h Handover) {
	t.inherited = &h
	for i := range h.Writes {
		t.trail.note(&h.Writes[i])
	}
	for _, s := range t.trail.steps {
		s.inherited = true
	}
}

// Inherited returns what the previous term has left. It is nil if there was none, or it was not
// released by an elector of this module. It is shared: do not change it.
func (t *Term) Inherited() *Handover { return t.inherited }

// Wrote records a write that was made under the term. The transport calls it when a request with a
// ledger was answered.
func (t *Term) Wrote(w *ledger.Write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trail.note(w)
}

// Written returns the writes that the next term has to know: those of this term and, in its first
// minute, of the terms before it. unknown counts the writes whose effect is not known.
func (t *Term) Written() (writes []ledger.Write, unknown int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := time.Since(t.made) > handedOn
	for _, s := range t.trail.newest() {
		if late && s.inherited {
			continue
		}
		writes = append(writes, s.toWrite())
	}
	writes = withoutRenewed(writes)
	slices.Reverse(writes)
	return writes, t.trail.unknown
}

type contextKey struct{}

// With returns a context whose requests are made under a term. A nil term changes nothing.
func With(ctx context.Context, t *Term) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, t)
}

// Without returns a context whose requests are made under no term on purpose: any replica may make
// them. They are not counted as unfenced, and a Strict client allows them.
func Without(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, (*Term)(nil))
}

// Of returns the term under which the requests of a context are made, nil for none.
func Of(ctx context.Context) *Term {
	t, _ := ctx.Value(contextKey{}).(*Term)
	return t
}

// Decided reports whether the context comes from [With] or [Without].
func Decided(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*Term)
	return ok
}
