// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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

// New makes a term that is trusted for a time from start, the [time.Now] at which the request was
// sent that acquired the Lease: others count from when they see it written, which is later. Call
// End when the term is over.
func New(token Token, start time.Time, trusted time.Duration) *Term {
	return &Term{
		token: token, made: time.Now(), done: make(chan struct{}),
		trust: trust{limit: trusted}, start: start, waiting: map[*passage]struct{}{},
	}
}

// Token returns the token that was given to New.
func (t *Term) Token() Token { return t.token }

// String returns the token as text.
func (t *Term) String() string { return t.token.String() }

// Extend records that the Lease was renewed by a request that was sent at start: the trust lasts
// from then. A term whose trust was over is trusted once more, because the Lease is still its own.
// A term that was ended stays so, and an earlier start changes nothing.
func (t *Term) Extend(start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if start.After(t.start) {
		t.start = start
		t.trust.renew()
	}
}

// End ends the trust at once: the Lease is lost or about to be released. From now on requests are
// refused, also those that wait for a connection, with the cause, which may be nil. Only the first
// call counts.
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

// Trusted returns nil while the term is trusted, else the reason; another process may lead then.
// The trust is over as soon as the monotonic or the wall clock says so: the former may stand still
// while a machine sleeps, the latter may be set back.
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

// Done returns a channel that End closes. It stays open if only the trust has run out.
func (t *Term) Done() <-chan struct{} { return t.done }

var errNotRenewed = errors.New("the Lease was not renewed in time")

// refusalLocked returns why the term is not trusted now.
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

// trust is the arithmetic of a term, without a clock or a lock.
type trust struct {
	limit time.Duration
	lost  bool
}

// over reports whether the trust is over, mono and wall after its start by the two clocks. It stays
// over even if a clock is set back.
func (t *trust) over(mono, wall time.Duration) bool {
	t.lost = t.lost || mono >= t.limit || wall >= t.limit
	return t.lost
}

// renew starts the trust again.
func (t *trust) renew() { t.lost = false }
