// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"reflect"
)

// Hooks observe a manager and all that it runs. A nil field observes nothing.
type Hooks struct {
	// Queue observes the queues of controllers, from Warm on.
	Queue      *Queue
	Controller *Controller
	Source     *Source
	Cache      *Cache
	// Client observes requests, including those for Leases.
	Client         *Client
	LeaderElection *LeaderElection
	Shards         *Shards
	Events         *Events
	Webhook        *Webhook
}

// With returns Hooks that call first h and then other. If a field of both has the same pointer, its
// hooks are called once. A field that With has combined has a new pointer.
func (h Hooks) With(other Hooks) Hooks {
	return Hooks{
		Queue: h.Queue.with(other.Queue), Controller: h.Controller.with(other.Controller),
		Source: h.Source.with(other.Source), Cache: h.Cache.with(other.Cache),
		Client: h.Client.with(other.Client), LeaderElection: h.LeaderElection.with(other.LeaderElection),
		Shards: h.Shards.with(other.Shards), Events: h.Events.with(other.Events), Webhook: h.Webhook.with(other.Webhook),
	}
}

func (q *Queue) with(other *Queue) *Queue {
	if one, ok := only(q, other); ok {
		return one
	}
	return &Queue{
		Opened: both(q.Opened, other.Opened), Closed: both(q.Closed, other.Closed), Added: both(q.Added, other.Added),
		Delayed: both(q.Delayed, other.Delayed), Taken: both(q.Taken, other.Taken), Settled: both(q.Settled, other.Settled),
		Dropped: both(q.Dropped, other.Dropped), Misused: both(q.Misused, other.Misused), Panicked: both(q.Panicked, other.Panicked),
	}
}

func (c *Controller) with(other *Controller) *Controller {
	if one, ok := only(c, other); ok {
		return one
	}
	return &Controller{
		Started: both(c.Started, other.Started), Stopped: both(c.Stopped, other.Stopped), TookOver: both(c.TookOver, other.TookOver), Awaited: both(c.Awaited, other.Awaited),
		Reconciling: chain(c.Reconciling, other.Reconciling), Reconciled: both2(c.Reconciled, other.Reconciled),
		GaveUp: both(c.GaveUp, other.GaveUp), Slow: both(c.Slow, other.Slow),
	}
}

func (s *Source) with(other *Source) *Source {
	if one, ok := only(s, other); ok {
		return one
	}
	return &Source{
		Started: both(s.Started, other.Started), Stopped: both(s.Stopped, other.Stopped), Dropped: both(s.Dropped, other.Dropped),
		HandlerFailed: both(s.HandlerFailed, other.HandlerFailed), PollFailed: both(s.PollFailed, other.PollFailed),
		HandlerBlocked: both(s.HandlerBlocked, other.HandlerBlocked),
	}
}

func (c *Cache) with(other *Cache) *Cache {
	if one, ok := only(c, other); ok {
		return one
	}
	return &Cache{
		Started: both(c.Started, other.Started), Stopped: both(c.Stopped, other.Stopped),
		InformerState: both(c.InformerState, other.InformerState), BrokenObject: both3(c.BrokenObject, other.BrokenObject),
		Restored: both(c.Restored, other.Restored),
	}
}

func (c *Client) with(other *Client) *Client {
	if one, ok := only(c, other); ok {
		return one
	}
	return &Client{
		Opened: both(c.Opened, other.Opened), Closed: both(c.Closed, other.Closed),
		Answered: both(c.Answered, other.Answered), Requested: both(c.Requested, other.Requested),
		Unfenced: both(c.Unfenced, other.Unfenced), Skipped: both(c.Skipped, other.Skipped),
		Unattributed: both(c.Unattributed, other.Unattributed),
	}
}

func (l *LeaderElection) with(other *LeaderElection) *LeaderElection {
	if one, ok := only(l, other); ok {
		return one
	}
	return &LeaderElection{
		Campaigning: both(l.Campaigning, other.Campaigning), TookOver: both(l.TookOver, other.TookOver), Acquired: both(l.Acquired, other.Acquired),
		Renewed: both(l.Renewed, other.Renewed), Lost: both(l.Lost, other.Lost), Released: both2(l.Released, other.Released),
		Leader: both2(l.Leader, other.Leader), CampaignedUnsynced: both(l.CampaignedUnsynced, other.CampaignedUnsynced), Trouble: both2(l.Trouble, other.Trouble),
	}
}

func (s *Shards) with(other *Shards) *Shards {
	if one, ok := only(s, other); ok {
		return one
	}
	return &Shards{
		Observed: both(s.Observed, other.Observed), Acquired: both(s.Acquired, other.Acquired),
		Released: both(s.Released, other.Released), Lost: both(s.Lost, other.Lost),
	}
}

func (e *Events) with(other *Events) *Events {
	if one, ok := only(e, other); ok {
		return one
	}
	return &Events{Sent: both(e.Sent, other.Sent), Failed: both(e.Failed, other.Failed), Dropped: both(e.Dropped, other.Dropped)}
}

func (w *Webhook) with(other *Webhook) *Webhook {
	if one, ok := only(w, other); ok {
		return one
	}
	return &Webhook{
		Received: both(w.Received, other.Received), Answered: both(w.Answered, other.Answered), Certificate: both(w.Certificate, other.Certificate),
	}
}

// only returns the one part to call, if the other one is the same or has no function.
func only[T any](a, b *T) (one *T, ok bool) {
	switch {
	case b == nil || a == b:
		return a, true
	case a == nil || reflect.ValueOf(a).Elem().IsZero():
		return b, true
	case reflect.ValueOf(b).Elem().IsZero():
		return a, true
	}
	return nil, false
}

// both calls f and then g, also if f panics: a Queue recovers panics, and g must not miss events
// then.
func both[A any](f, g func(A)) func(A) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(a A) { defer g(a); f(a) }
}

func both2[A, B any](f, g func(A, B)) func(A, B) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(a A, b B) { defer g(a, b); f(a, b) }
}

func both3[A, B, C any](f, g func(A, B, C)) func(A, B, C) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(a A, b B, c C) { defer g(a, b, c); f(a, b, c) }
}

// chain passes the context of f to g.
func chain[A any](f, g func(context.Context, A) context.Context) func(context.Context, A) context.Context {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(ctx context.Context, a A) context.Context {
		if derived := f(ctx, a); derived != nil {
			ctx = derived
		}
		if derived := g(ctx, a); derived != nil {
			ctx = derived
		}
		return ctx
	}
}
