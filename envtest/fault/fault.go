// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Fault is an active rule and its counters. Its methods are safe for concurrent use, also after
// Remove.
type Fault struct {
	proxy *Proxy
	rule  Rule

	// The rest is guarded by proxy.mu.
	removed  bool
	released uint64 // stamps up to this are released
	hits     int
	ended    int
	held     map[*exchange]struct{}
}

// Add activates a rule.
func (p *Proxy) Add(r Rule) *Fault {
	r.Times, r.Delay, r.CutAfter, r.Lag = max(r.Times, 0), max(r.Delay, 0), max(r.CutAfter, 0), max(r.Lag, 0)
	r.Match.Verbs, r.Match.Groups, r.Match.Resources = slices.Clone(r.Match.Verbs), slices.Clone(r.Match.Groups), slices.Clone(r.Match.Resources)
	f := &Fault{proxy: p, rule: r, held: map[*exchange]struct{}{}}
	p.mu.Lock()
	p.faults = append(p.faults, f)
	candidates := slices.Clone(p.underWay) // later ones match f on arrival
	p.mu.Unlock()
	if !r.answers() {
		return f
	}
	for _, x := range candidates {
		if r.Match.matches(p.copyOf(&x.request)) {
			p.mu.Lock()
			if !x.ended {
				f.attachLocked(x)
				p.rules.broadcastLocked()
			}
			p.mu.Unlock()
		}
	}
	return f
}

// attachLocked counts a matching request and applies f to it, unless f is used up.
func (f *Fault) attachLocked(x *exchange) {
	if f.removed || f.rule.Times > 0 && f.hits >= f.rule.Times {
		return
	}
	f.hits++
	x.faults = append(x.faults, attachment{f, time.Now()})
	f.proxy.counters.broadcastLocked()
}

// Remove deactivates the rule. Withheld requests and answers continue immediately, and no more
// requests match. Cut connections stay cut.
func (f *Fault) Remove() {
	p := f.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	f.removed = true
	p.faults = slices.DeleteFunc(p.faults, func(other *Fault) bool { return other == f })
	p.rules.broadcastLocked()
}

// Release releases what Rule.Hold and Rule.Freeze withhold now: requests, and the parts of answers
// that have arrived. Later arrivals are withheld again.
func (f *Fault) Release() {
	p := f.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	f.released = p.stamp
	p.rules.broadcastLocked()
}

// Hits returns the number of matching requests.
func (f *Fault) Hits() int {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	return f.hits
}

// WaitHits returns nil when n requests have matched since the rule was added. It returns an error
// if ctx ends or the proxy is stopped earlier.
func (f *Fault) WaitHits(ctx context.Context, n int) error {
	return f.wait(ctx, n, "matched", func() int { return f.hits })
}

// WaitHeld returns nil when n requests are withheld at the same time, by Rule.Hold or with a part
// of their answer by Rule.Freeze. It returns errors like WaitHits.
func (f *Fault) WaitHeld(ctx context.Context, n int) error {
	return f.wait(ctx, n, "held", func() int { return len(f.held) })
}

// WaitEnded returns nil when n matching requests have ended; Proxy.Requests describes their end. It
// returns errors like WaitHits.
func (f *Fault) WaitEnded(ctx context.Context, n int) error {
	return f.wait(ctx, n, "ended", func() int { return f.ended })
}

// wait calls countLocked until it returns at least n.
func (f *Fault) wait(ctx context.Context, n int, what string, countLocked func() int) error {
	last, stopped := 0, false
	err := f.proxy.wait(ctx, &f.proxy.counters, nil, func(time.Time) (bool, time.Time) {
		last, stopped = countLocked(), f.proxy.stopped
		return last >= n || stopped, time.Time{}
	})
	if err == nil && last < n {
		err = errStopped
	}
	if err != nil {
		return fmt.Errorf("fault: waiting for %d requests %s by the rule: got %d, with %d hits: %w; see Proxy.Requests", n, what, last, f.Hits(), err)
	}
	return nil
}

// notice is closed and replaced to wake waiters.
type notice chan struct{}

func (n *notice) broadcastLocked() {
	close(*n)
	*n = make(notice)
}

// wait returns nil when readyLocked, which it calls with p.mu held, returns ready. It calls it
// again after a broadcast on news, a receive from wake, or at the returned time, if any. If ctx
// ends first, it returns the cause.
func (p *Proxy) wait(ctx context.Context, news *notice, wake <-chan struct{}, readyLocked func(now time.Time) (ready bool, at time.Time)) error {
	for {
		p.mu.Lock()
		ready, at := readyLocked(time.Now())
		changed := *news
		p.mu.Unlock()
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

// cause returns the cause of ctx's end, wrapped so that errors.Is also finds the context's own
// error.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return ctx.Err()
}
