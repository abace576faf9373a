// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// Token identifies one term of leadership by the UID of the Lease and its version at the
// acquisition. A higher version is a newer term, even if the Lease was created again.
// (leaseTransitions starts over then, and does not count a holder that acquires the Lease twice in
// a row.)
type Token struct {
	Lease           types.UID
	ResourceVersion string // of the Lease, at the acquisition
	// Holder is the Lease's spec.holderIdentity.
	Holder string
}

// String returns UID@version.
func (t Token) String() string { return string(t.Lease) + "@" + t.ResourceVersion }

// Term is one term of leadership. It is trusted for some time after the last successful renewal of
// its Lease was sent. Requests with its context ([With]) pass the fence only while it is trusted.
// The elector makes, extends and ends it. It is safe for concurrent use.
//
// Token, Trusted, Until and Done also take a nil *Term, which a context without leader election
// has: its Token is empty, it is trusted, and it never ends.
type Term struct {
	fence

	token     Token
	made      time.Time
	inherited *Handover
	trail     trail // guarded by the fence's mutex; a ledger may hold its own mutex meanwhile
}

// New makes a term. It is trusted until the duration trusted has passed since start, the [time.Now]
// before the request that acquired the Lease: other electors see the Lease later, and count from
// then. Call End when the term is over.
func New(token Token, start time.Time, trusted time.Duration) *Term {
	return &Term{
		fence: fence{
			name: "the term of leadership " + token.String(), done: make(chan struct{}),
			trust: trust{limit: trusted}, start: start, waiting: map[*passage]struct{}{},
		},
		token: token, made: time.Now(), trail: trail{},
	}
}

// Part makes a term for a part of the work under t, such as a slot. It is trusted while t is, until
// its own End, which does not affect t. Its requests pass both fences. Errors contain its name,
// such as "slot 17".
//
// A part has the Token and Until of t. Extend has no effect on it, and the end of t does not close
// its Done. Its writes and its handover are its own: t does not contain them.
func (t *Term) Part(name string) *Term {
	return &Term{
		fence: fence{
			name: name + " of " + t.name, whole: &t.fence, done: make(chan struct{}),
			waiting: map[*passage]struct{}{},
		},
		token: t.token, made: time.Now(), trail: trail{},
	}
}

// Token returns New's token.
func (t *Term) Token() Token {
	if t == nil {
		return Token{}
	}
	return t.token
}

// Trusted returns nil while the term is trusted, else the reason. Either clock ends the trust,
// because the monotonic clock may stand still while a machine sleeps, and the wall clock may be set
// back.
func (t *Term) Trusted() error {
	if t == nil {
		return nil
	}
	return t.trusted()
}

// Until returns when the trust will be over, unless extended or ended before.
func (t *Term) Until() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.until()
}

// Done returns a channel that End closes. It stays open when the trust runs out.
func (t *Term) Done() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.done
}

// handedOn is how long a term passes on inherited writes. By then every informer shows them, or
// never will.
const handedOn = time.Minute

// Inherit sets the previous term's handover. The term's maker calls it once, before other
// goroutines use the term.
func (t *Term) Inherit(h Handover) { t.inherited = &h }

// Inherited returns the previous term's handover, or nil if no elector of this module released that
// term. It is shared: do not change it.
func (t *Term) Inherited() *Handover { return t.inherited }

// Wrote records a write under the term. The transport calls it after each request with a ledger.
func (t *Term) Wrote(w *ledger.Write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trail.note(w)
}

// Written returns the handover for the next term, sorted by API server and resource: the writes of
// this term and, in its first minute, the inherited ones.
func (t *Term) Written() *Handover {
	h := &Handover{}
	if t.inherited != nil && time.Since(t.made) <= handedOn {
		h.Add(t.inherited)
	}
	t.mu.Lock()
	h.Add(t.trail.now())
	t.mu.Unlock()
	slices.SortFunc(h.Written, func(a, b Written) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Resource.String(), b.Resource.String()))
	})
	return h
}

type contextKey struct{}

// With returns a context for requests under a term, or ctx if the term is nil.
func With(ctx context.Context, t *Term) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, t)
}

// Without returns a context without a term, for requests that any replica may make. They do not
// count as unfenced, and a client with RequireTerm allows them.
func Without(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, (*Term)(nil))
}

// FromContext returns the context's term, or nil, which answers as [Term] says.
func FromContext(ctx context.Context) *Term {
	t, _ := ctx.Value(contextKey{}).(*Term)
	return t
}

// Decided reports whether a context comes from [With] or [Without].
func Decided(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*Term)
	return ok
}
