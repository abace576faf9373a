// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"
)

// ErrStopped is the error of requests that Proxy.Stop or Rules.Stop ends, and of later requests.
var ErrStopped = errors.New("fault: the rules have been stopped")

var (
	errCut   = fmt.Errorf("fault: the connection was cut by a rule: %w", syscall.ECONNRESET)
	errEnded = errors.New("fault: the request has ended")
)

// Rules apply to the requests of a Proxy, or, with Transport, of an http.RoundTripper. Their
// methods are safe for concurrent use.
type Rules struct {
	options Options
	lasting sync.WaitGroup // requests that may outlive their clients; none is added once stopped

	mu       sync.Mutex // guards what follows, and fields in other types that name it
	changes  notice     // wakes running requests: their rules have changed
	counters notice     // wakes waiters for a Fault's counters
	stopped  bool
	stamp    uint64 // of the latest arrival, of a request or a part of an answer
	faults   []*Fault
	underWay []*exchange // in order of arrival
	log      []*Request
	counts   map[Kind]int
}

// NewRules returns rules for use without a proxy, see Transport.
func NewRules() *Rules { return newRules(Options{}) }

func newRules(o Options) *Rules {
	return &Rules{options: o.withDefaults(), changes: make(notice), counters: make(notice), counts: map[Kind]int{}}
}

// Stop ends the running requests, and returns when they have ended. Held requests are not sent, and
// later ones fail. Calling it again is a no-op.
func (r *Rules) Stop() {
	for _, x := range r.markStopped() {
		x.stop()
	}
	r.lasting.Wait()
}

func (r *Rules) markStopped() (running []*exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.counters.broadcastLocked()
	return slices.Clone(r.underWay)
}

// Cut breaks the connections of matching running requests (see Rule.Cut), and returns their number.
func (r *Rules) Cut(m Match) int {
	r.mu.Lock()
	candidates := slices.Clone(r.underWay)
	r.mu.Unlock()
	n := 0
	for _, x := range candidates {
		if m.matches(r.copyOf(x.request)) && x.cut() {
			n++
		}
	}
	return n
}

// Kind is the key of Counts, with the values of the same fields of Request.
type Kind struct{ Verb, Group, Resource, Subresource string }

// Counts returns the number of requests so far, by kind. Requests without a resource in the path
// are counted by verb alone.
func (r *Rules) Counts() map[Kind]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// Requests returns the matching requests among the last Options.LogSize ones, in order of arrival.
func (r *Rules) Requests(m Match) []Request {
	r.mu.Lock()
	all := make([]Request, len(r.log))
	for i, request := range r.log {
		all[i] = request.copyLocked()
	}
	r.mu.Unlock()
	return slices.DeleteFunc(all, func(request Request) bool { return !m.matches(request) })
}

func (r *Rules) copyOf(request *Request) Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return request.copyLocked()
}

// begin returns false after Stop.
func (r *Rules) begin(x *exchange) bool {
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		return false
	}
	r.stamp++
	x.stamp = r.stamp
	r.underWay = append(r.underWay, x)
	candidates := slices.Clone(r.faults) // later rules look for x themselves
	r.logLocked(x)
	request := x.request.copyLocked()
	r.mu.Unlock()

	candidates = slices.DeleteFunc(candidates, func(f *Fault) bool { return !f.rule.Match.matches(request) })
	if len(candidates) > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, fault := range candidates {
			fault.attachLocked(x)
		}
	}
	return true
}

func (r *Rules) logLocked(x *exchange) {
	request := x.request
	kind := Kind{request.Verb, request.Group, request.Resource, request.Subresource}
	if request.Resource == "" {
		kind.Group = ""
	}
	r.counts[kind]++
	r.log = append(r.log, request)
	if len(r.log) > r.options.LogSize {
		r.log[0] = nil
		r.log = r.log[1:]
	}
}

type notice chan struct{}

func (n *notice) broadcastLocked() {
	close(*n)
	*n = make(notice)
}

// wait returns nil when readyLocked returns ready, with r.mu held. It calls it again after a
// broadcast on news, a receive from wake, or at the returned time, if any.
func (r *Rules) wait(ctx context.Context, news *notice, wake <-chan struct{}, readyLocked func(now time.Time) (ready bool, at time.Time)) error {
	for {
		r.mu.Lock()
		ready, at := readyLocked(time.Now())
		changed := *news
		r.mu.Unlock()
		switch {
		case ready:
			return nil
		case ctx.Err() != nil:
			return cause(ctx)
		}
		var due <-chan time.Time
		if !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case <-changed:
		case <-wake:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// cause wraps the cause of ctx's end, so that errors.Is also finds the context's own error.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return ctx.Err()
}
