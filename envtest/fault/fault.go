// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Fault is an active rule and its counters. Its methods are safe for concurrent use, also after
// Remove.
type Fault struct {
	rules *Rules
	rule  Rule

	// guarded by rules.mu
	removed  bool
	released uint64 // stamps up to this are released
	hits     int
	ended    int
	held     map[*exchange]struct{}
}

// Add activates a rule.
func (r *Rules) Add(rule Rule) *Fault {
	rule.Times, rule.Delay, rule.CutAfter, rule.Lag = max(rule.Times, 0), max(rule.Delay, 0), max(rule.CutAfter, 0), max(rule.Lag, 0)
	m := &rule.Match
	m.Verbs, m.Groups, m.Resources = slices.Clone(m.Verbs), slices.Clone(m.Groups), slices.Clone(m.Resources)
	f := &Fault{rules: r, rule: rule, held: map[*exchange]struct{}{}}
	r.mu.Lock()
	r.faults = append(r.faults, f)
	candidates := slices.Clone(r.underWay) // later ones match f on arrival
	r.mu.Unlock()
	if !rule.answers() {
		return f
	}
	for _, x := range candidates {
		if rule.Match.matches(r.copyOf(x.request)) {
			r.mu.Lock()
			if !x.ended {
				f.attachLocked(x)
				r.changes.broadcastLocked()
			}
			r.mu.Unlock()
		}
	}
	return f
}

func (f *Fault) attachLocked(x *exchange) {
	if f.removed || f.rule.Times > 0 && f.hits >= f.rule.Times {
		return
	}
	f.hits++
	x.faults = append(x.faults, f)
	x.cutInTimeLocked(f)
	if x.line != nil {
		x.line.fillLocked()
		x.line.countLocked()
	}
	f.rules.counters.broadcastLocked()
}

// Remove deactivates the rule. Withheld requests and answers continue immediately. Cut connections
// stay cut.
func (f *Fault) Remove() {
	r := f.rules
	r.mu.Lock()
	defer r.mu.Unlock()
	f.removed = true
	r.faults = slices.DeleteFunc(r.faults, func(other *Fault) bool { return other == f })
	f.changedLocked()
}

// Release releases what Rule.Hold and Rule.Freeze withhold now: requests, and the parts of answers
// that have arrived. Later arrivals are withheld again.
func (f *Fault) Release() {
	r := f.rules
	r.mu.Lock()
	defer r.mu.Unlock()
	f.released = r.stamp
	f.changedLocked()
}

func (f *Fault) changedLocked() {
	for x := range f.held {
		if x.line != nil {
			x.line.countLocked()
		}
	}
	f.rules.changes.broadcastLocked()
}

// Hits returns the number of matching requests.
func (f *Fault) Hits() int {
	f.rules.mu.Lock()
	defer f.rules.mu.Unlock()
	return f.hits
}

// WaitHits returns nil when n requests have matched since the rule was added, or an error if ctx
// ends or the rules are stopped earlier.
func (f *Fault) WaitHits(ctx context.Context, n int) error {
	return f.wait(ctx, n, "matched", func() int { return f.hits })
}

// WaitHeld returns nil when n requests are withheld at the same time, by Rule.Hold or with a part
// of their answer by Rule.Freeze. It returns errors like WaitHits.
func (f *Fault) WaitHeld(ctx context.Context, n int) error {
	return f.wait(ctx, n, "held", func() int { return len(f.held) })
}

// WaitEnded returns nil when n matching requests have ended; Rules.Requests describes their end. It
// returns errors like WaitHits.
func (f *Fault) WaitEnded(ctx context.Context, n int) error {
	return f.wait(ctx, n, "ended", func() int { return f.ended })
}

func (f *Fault) wait(ctx context.Context, n int, what string, countLocked func() int) error {
	last, stopped := 0, false
	err := f.rules.wait(ctx, &f.rules.counters, nil, func(time.Time) (bool, time.Time) {
		last, stopped = countLocked(), f.rules.stopped
		return last >= n || stopped, time.Time{}
	})
	if err == nil && last < n {
		err = ErrStopped
	}
	if err != nil {
		return fmt.Errorf("fault: waiting for %d requests %s by the rule: got %d, with %d hits: %w; see Rules.Requests", n, what, last, f.Hits(), err)
	}
	return nil
}
