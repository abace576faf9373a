// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Token tells one term of leadership from all others: the Lease, and its version when it was acquired. Of two tokens of one
// Lease the one with the higher version is the newer. A Lease that was deleted and made again has another UID, and higher
// versions. (leaseTransitions is no such number: it starts over with a new Lease, and who takes a Lease twice in a row does not
// count.)
type Token struct {
	Lease           types.UID
	ResourceVersion string
	// Holder is the identity in the Lease (spec.holderIdentity): what a ValidatingAdmissionPolicy can compare with an annotation.
	Holder string
}

// String is the UID, an @, and the version.
func (t Token) String() string { return string(t.Lease) + "@" + t.ResourceVersion }

// Term is one term of leadership, and for how long it may be trusted: for a stated time from when the last successful
// renewal of its Lease was sent. Requests whose context carries it ([WithTerm]) pass the fence of a [Client] only while it is
// trusted. It is safe for concurrent use. Whoever holds the Lease makes it, extends it and ends it.
type Term struct {
	token     Token
	done      chan struct{}
	made      time.Time
	inherited *Handover
	trail     trail

	mu      sync.Mutex // guards what follows, and the passages
	trust   trust
	start   time.Time // of the renewal
	ended   error
	waiting map[*passage]struct{} // requests that are not on the wire yet
	timer   *time.Timer           // while armed, it runs until the trust ends, or ended before it was extended
	armed   bool
}

// NewTerm makes a term that is trusted for a time from start, which is when the request was sent that has acquired the
// Lease, as [time.Now] said: others count from when they see it written, which is later. End must be called in the end.
func NewTerm(token Token, start time.Time, trusted time.Duration) *Term {
	return &Term{token: token, made: time.Now(), done: make(chan struct{}), trust: trust{limit: trusted}, start: start, waiting: map[*passage]struct{}{}}
}

// Token returns what NewTerm was given.
func (t *Term) Token() Token { return t.token }

// String is that of the token.
func (t *Term) String() string { return t.token.String() }

// Extend says that the Lease was renewed by a request that was sent at start: the trust lasts from then. A term whose trust was
// over is trusted once more: nobody has taken the Lease in between. Ended ones stay so, and an earlier start changes nothing.
func (t *Term) Extend(start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if start.After(t.start) {
		t.start = start
		t.trust.renew()
	}
}

// End ends the trust at once: the Lease is lost or about to be released. Requests are refused from now on, also those that wait
// for a connection, and are told the cause, which may be nil. Only the first call counts.
func (t *Term) End(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	t.mu.Lock()
	if t.ended == nil {
		t.ended = fmt.Errorf("the term of leadership %s has ended: %w", t, cause)
		close(t.done)
		if t.timer != nil {
			t.timer.Stop()
		}
	}
	refused := t.withdrawLocked(t.ended)
	t.mu.Unlock()
	cancelAll(refused)
}

// Trusted returns nil as long as the term may be trusted, else why not. Somebody else may lead then. It is over as soon as the
// monotonic or the wall clock says so: the former may stand still while a machine sleeps, the latter may be set back.
func (t *Term) Trusted() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusalLocked()
}

// Until returns when the trust is over, unless it is extended or ended before.
func (t *Term) Until() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.start.Add(t.trust.limit)
}

// Done returns a channel that is closed by End. It stays open where only the trust has run out.
func (t *Term) Done() <-chan struct{} { return t.done }

var errNotRenewed = errors.New("the Lease was not renewed in time")

// refusalLocked says why the term is not to be trusted now.
func (t *Term) refusalLocked() error {
	if t.ended != nil {
		return t.ended
	}
	now := time.Now()
	mono, wall := now.Sub(t.start), now.Round(0).Sub(t.start.Round(0))
	if t.trust.over(mono, wall) {
		return fmt.Errorf("the term of leadership %s is not trusted any more: %w: it has been %s, at most %s are allowed",
			t, errNotRenewed, max(mono, wall).Round(time.Millisecond), t.trust.limit)
	}
	return nil
}

// trust is the arithmetic of a term: it knows neither clock nor lock.
type trust struct {
	limit time.Duration
	lost  bool
}

// over says whether the trust is over, so long after its start by the monotonic and by the wall clock. It stays over, even if
// a clock is set back.
func (t *trust) over(mono, wall time.Duration) bool {
	t.lost = t.lost || mono >= t.limit || wall >= t.limit
	return t.lost
}

// renew starts anew.
func (t *trust) renew() { t.lost = false }

type termKey struct{}

// WithTerm returns a context whose requests are made under a term. A nil term changes nothing.
func WithTerm(ctx context.Context, t *Term) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, termKey{}, t)
}

// WithoutTerm returns a context whose requests are made under no term, on purpose: any replica may make them, also one that does
// not lead. They are not counted as unfenced, and pass under [Options].Strict.
func WithoutTerm(ctx context.Context) context.Context {
	return context.WithValue(ctx, termKey{}, (*Term)(nil))
}

// TermOf returns the term under which the requests of a context are made, nil for none.
func TermOf(ctx context.Context) *Term {
	t, _ := termOf(ctx)
	return t
}

// termOf also says whether it was said at all.
func termOf(ctx context.Context) (t *Term, said bool) {
	t, said = ctx.Value(termKey{}).(*Term)
	return t, said
}
