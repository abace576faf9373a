// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package fence has the inside of package term: the fence that the transport sends requests
// through, the parts of a term, and the writes that a term hands over to the next one. A *term.Term
// converts to a *[Term].
package fence

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// Token is a term.Token.
type Token struct {
	Lease                   types.UID
	ResourceVersion, Holder string
}

// String returns UID@version.
func (t Token) String() string { return string(t.Lease) + "@" + t.ResourceVersion }

// Term is a term.Term. It is safe for concurrent use. A nil Term answers as a nil term.Term does,
// and has inherited nothing.
type Term struct {
	fence

	token     Token
	made      time.Time
	inherited *Handover
	trail     trail // guarded by the fence's mutex; a ledger may hold its own mutex meanwhile
	viewers   []Viewer
}

// Viewer is what the work under a term reads. Package cache implements it.
type Viewer interface {
	// Shown calls add with the newest version of an object that each informer has shown, or more.
	Shown(add func(host string, of schema.GroupResource, version string))
}

// New is term.New.
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

// Trusted is term.Term.Trusted.
func (t *Term) Trusted() error {
	if t == nil {
		return nil
	}
	return t.trusted()
}

// Until is term.Term.Until.
func (t *Term) Until() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.until()
}

// Done is term.Term.Done.
func (t *Term) Done() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.done
}

// handedOn is how long a term passes on inherited writes. By then every informer shows them, or
// never will.
const handedOn = time.Minute

// Inherit sets the previous term's handover, nil for none. The term's maker calls it once, before
// other goroutines use the term.
func (t *Term) Inherit(h *Handover) { t.inherited = h }

// Inherited returns the previous term's handover, or nil if no elector of this module released that
// term. It is shared: do not change it.
func (t *Term) Inherited() *Handover {
	if t == nil {
		return nil
	}
	return t.inherited
}

// Wrote records a write under the term. The transport calls it after each request with a ledger.
func (t *Term) Wrote(w *ledger.Write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trail.note(w)
}

// Reads records what the work under the term reads, for Written.
func (t *Term) Reads(v Viewer) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.viewers = append(t.viewers, v)
}

// Written returns the handover for the next term, sorted by API server and resource: the writes of
// this term, what its work has read and, in its first minute, what it has inherited.
func (t *Term) Written() *Handover {
	h := &Handover{}
	if t.inherited != nil && time.Since(t.made) <= handedOn {
		h.Add(t.inherited)
	}
	t.mu.Lock()
	h.Add(t.trail.now())
	viewers := slices.Clone(t.viewers)
	t.mu.Unlock()
	for _, v := range viewers {
		v.Shown(func(host string, of schema.GroupResource, version string) {
			h.Add(&Handover{Written: []Written{{Host: host, Resource: of, ResourceVersion: version, Read: true}}})
		})
	}
	slices.SortFunc(h.Written, func(a, b Written) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Resource.String(), b.Resource.String()))
	})
	return h
}

type contextKey struct{}

// With is term.With.
func With(ctx context.Context, t *Term) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, t)
}

// Without is term.Without.
func Without(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, (*Term)(nil))
}

// FromContext returns the context's term, or nil.
func FromContext(ctx context.Context) *Term {
	t, _ := ctx.Value(contextKey{}).(*Term)
	return t
}

// Decided reports whether a context comes from [With] or [Without].
func Decided(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*Term)
	return ok
}
