// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/fence"
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
func (t Token) String() string { return fence.Token(t).String() }

// Term is one term of leadership. It is trusted for some time after the last successful renewal of
// its Lease was sent. Requests with its context ([With]) pass the fence only while it is trusted.
// The elector makes, extends and ends it. It is safe for concurrent use.
//
// Token, Trusted, Until and Done also take a nil *Term, which a context without leader election
// has: its Token is empty, it is trusted, and it never ends.
type Term fence.Term

// New makes a term. It is trusted until the duration trusted has passed since start, the [time.Now]
// before the request that acquired the Lease: other electors see the Lease later, and count from
// then. Call End when the term is over.
func New(token Token, start time.Time, trusted time.Duration) *Term {
	return (*Term)(fence.New(fence.Token(token), start, trusted))
}

func (t *Term) inside() *fence.Term { return (*fence.Term)(t) }

// Token returns New's token.
func (t *Term) Token() Token { return Token(t.inside().Token()) }

// Trusted returns nil while the term is trusted, else the reason. Either clock ends the trust,
// because the monotonic clock may stand still while a machine sleeps, and the wall clock may be set
// back.
func (t *Term) Trusted() error { return t.inside().Trusted() }

// Until returns when the trust will be over, unless extended or ended before.
func (t *Term) Until() time.Time { return t.inside().Until() }

// Done returns a channel that End closes. It stays open when the trust runs out.
func (t *Term) Done() <-chan struct{} { return t.inside().Done() }

// Extend records a renewal that was sent at start: the trust counts from there, even if it was
// over. It has no effect after End, or if start is not later than the last one.
func (t *Term) Extend(start time.Time) { t.inside().Extend(start) }

// End ends the trust at once. It refuses new requests and those that wait for a connection. The
// reason is cause, such as that the Lease is lost. With nil, the work has returned, and the Lease
// is about to be released. If the trust is over, that is the reason. Only the first call has an
// effect.
func (t *Term) End(cause error) { t.inside().End(cause) }

// With returns a context for requests under a term, or ctx if the term is nil.
func With(ctx context.Context, t *Term) context.Context { return fence.With(ctx, t.inside()) }

// Without returns a context without a term, for requests that any replica may make. They do not
// count as unfenced, and a client with RequireTerm allows them.
func Without(ctx context.Context) context.Context { return fence.Without(ctx) }

// FromContext returns the context's term, or nil, which answers as [Term] says.
func FromContext(ctx context.Context) *Term {
	return (*Term)(fence.FromContext(ctx))
}

// ErrFenced matches every [FencedError] with errors.Is.
var ErrFenced = errors.New("refused by the fence")

// FencedError is the error of a request that was refused because another process may lead.
// errors.Is finds [ErrFenced] and the cause of [Term.End].
type FencedError struct {
	// Controller made the request. It is empty without a ledger.
	Controller string
	// Request is the refused request.
	Request ledger.Request
	// Uncertain reports that parts of the request may have been sent: it was refused between its
	// connection and the first byte. With a transport other than *http.Transport
	// (rest.Config.Transport), connections may be unknown. Then every request that was refused
	// after it reached the transport is uncertain.
	Uncertain bool
	// Err is the reason.
	Err error
}

// Error names the controller, the request and the reason.
func (e *FencedError) Error() string {
	s := ""
	if e.Controller != "" {
		s = "controller " + e.Controller + ": "
	}
	return s + "the request to " + e.Request.String() + " is " + ErrFenced.Error() + ": " + e.Err.Error()
}

// Unwrap returns ErrFenced and the reason.
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, e.Err} }
