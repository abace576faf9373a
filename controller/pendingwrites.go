// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/ledger"
)

// lag is a state that an informer does not show yet.
type lag = consistency.Lag

type textLag string

func (g textLag) String() string                { return string(g) }
func (textLag) Notify(consistency.Waker) func() { return func() {} }
func (textLag) Failing() bool                   { return false }
func (textLag) Unread() bool                    { return false }
func (textLag) Unserved() bool                  { return false }

// inherited are writes that Lead waits for. After the wait, a past with givenUp replaces the first
// one.
type inherited struct {
	leader atomic.Pointer[lastRun] // the previous leader's
	waits  atomic.Pointer[string]
}

// pendingWrites compares earlier writes with the caches. It has no keys, so it is not generic: each
// package that creates a controller compiles generic code again.
type pendingWrites struct {
	name      string
	bound     time.Duration
	o         *Options
	logger    func(context.Context) *slog.Logger
	informers consistency.Declarations
	stale     func() error // why an input may be stale

	resolver  resolver
	inherited inherited
}

func (k *pendingWrites) waitAtMost() time.Duration {
	if k.bound < 0 { // then only a key that returned Stale waits
		return defaultReadYourWrites
	}
	return k.bound
}

// in reports whether a write is in a state.
func (p *lastRun) in(s writeState) bool {
	return slices.ContainsFunc(p.writes, func(w pendingWrite) bool { return w.state == s })
}

// own returns the Reconcile's own writes.
func (p *lastRun) own() []pendingWrite {
	n := len(p.writes)
	for n > 0 && !p.writes[n-1].carried {
		n--
	}
	return p.writes[n:]
}

// known returns the own writes, and the carried ones that the key waits for.
func (p *lastRun) known() []pendingWrite {
	return slices.DeleteFunc(slices.Clone(p.writes), func(w pendingWrite) bool {
		return w.carried && w.state != writeWaits || w.state == writeUnawaited
	})
}

// refresh reads the answers that came since.
func (p *lastRun) refresh() {
	if p.answers == nil {
		return
	}
	carried := p.writes[:len(p.writes)-len(p.own())]
	var own []pendingWrite
	own, p.answers = awaited(p.answers)
	p.writes = slices.Concat(carried, own)
}

// behind returns the last write that an informer does not show yet, or nil, and why others cannot
// be waited for. Writes with a lost answer become unsure. It checks all writes, oldest first: a
// deleted object is absent before its create, too.
func (k *pendingWrites) behind(p *lastRun) (last lag, unknown error) {
	p.refresh()
	for i := range p.writes {
		w := &p.writes[i]
		if !w.state.pending() {
			continue
		}
		w.state = writeWaits
		missing, why := k.lagOf(w)
		switch {
		case missing != nil:
			last = missing
		case why != nil && w.Unknown != "" && !w.resolved:
			w.state = writeUnsure
		case why != nil:
			unknown = errors.Join(unknown, fmt.Errorf("%s: %w", &w.Write, why))
		}
	}
	return last, unknown
}

func (k *pendingWrites) lagOf(w *pendingWrite) (missing lag, unknown error) {
	if w.Effect == ledger.Pending {
		return textLag(w.String() + ": there is no answer yet"), nil
	}
	shows := w.instead
	if !w.resolved {
		shows = []consistency.Write{w.written()}
	}
	for _, s := range shows {
		g, why := k.informers.Behind(s)
		if g != nil {
			missing = g
		}
		unknown = errors.Join(unknown, why)
	}
	return missing, unknown
}

// stillMissing names the given-up writes that are still not visible. Lost answers count for as long
// as a key would wait for them.
func (k *pendingWrites) stillMissing(p *lastRun) error {
	var all []error
	for i := range p.writes {
		w := &p.writes[i]
		if w.state != writeGivenUp {
			continue
		}
		lag, why := k.lagOf(w)
		switch {
		case w.Effect == ledger.Pending && time.Since(w.Started) >= k.waitAtMost():
			w.state = writeShown // its ledger was given up, too
		case lag != nil:
			w.failing = w.Effect != ledger.Pending && lag.Failing()
			all = append(all, errors.New(lag.String()))
		case w.open && time.Since(w.Started) < min(k.waitAtMost(), carriedOutWithin):
			all = append(all, errors.New(w.String()+": its answer was lost, and it may still be carried out"))
		case why != nil && w.Unknown != "" && time.Since(w.Started.Add(w.Took)) < k.waitAtMost():
			all = append(all, fmt.Errorf("%s: %w", &w.Write, why))
		default:
			w.state = writeShown
		}
	}
	return errors.Join(all...)
}

func unansweredOf(p *lastRun) error {
	var all []error
	for i := range p.writes {
		if w := &p.writes[i]; w.state.pending() && w.Effect == ledger.Pending {
			all = append(all, errors.New(w.String()+": there is no answer yet"))
		}
	}
	return errors.Join(all...)
}

func awaited(l *journal.Journal) (writes []pendingWrite, again *journal.Journal) {
	for _, w := range l.Writes() {
		writes = append(writes, pendingWrite{Write: w})
		if w.Effect == ledger.Pending {
			again = l
		}
	}
	return writes, again
}

func (w *pendingWrite) written() consistency.Write {
	s := written(&w.Write)
	if w.batch != nil {
		s.Batch, s.Answered = w.batch, w.taken
	}
	return s
}

func written(w *ledger.Write) consistency.Write {
	return consistency.Write{
		Host: w.Host, Resource: schema.GroupResource{Group: w.Group, Resource: w.Resource}, Namespace: w.Namespace, Name: w.Name,
		UID: w.UID, ResourceVersion: w.ResourceVersion, Object: w.Object, Unknown: w.Unknown,
		Verb: w.Verb, Replaces: w.Replaces, Subresource: w.Subresource, Sent: w.Started, Answered: answered(w),
		Gone:   w.Effect == ledger.Gone,
		Marked: w.Effect == ledger.Accepted && w.Deletes(),
	}
}

func answered(w *ledger.Write) time.Time {
	if w.Started.IsZero() || w.Effect == ledger.Pending {
		return time.Time{}
	}
	return w.Started.Add(w.Took)
}

// staleLag returns what a key waits for after its Reconcile returned Stale, or nil.
func (k *pendingWrites) staleLag(p *lastRun) lag {
	if failing := k.informers.Failing(); failing != nil {
		return failing
	}
	for i := range p.writes {
		if w := &p.writes[i]; w.state == writeGivenUp {
			if missing, _ := k.lagOf(w); missing != nil {
				return missing
			}
		}
	}
	if err := errors.Join(k.stillMissing(p), k.stale()); err != nil {
		return textLag(err.Error())
	}
	return nil
}

func (k *pendingWrites) missed(p *lastRun) bool {
	return slices.ContainsFunc(p.writes, func(w pendingWrite) bool { return w.state.pending() && k.informers.Missed(written(&w.Write)) })
}

// resolve asks the API server about lost answers. It returns a lag if it cannot ask yet.
func (k *pendingWrites) resolve(ctx context.Context, p *lastRun) lag {
	within := resolveWithin
	if p.writes[0].batch != nil {
		within = k.bound
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for i := range p.writes {
		w := &p.writes[i]
		if _, why := k.lagOf(w); !w.state.pending() || why == nil || w.Unknown == "" || w.resolved || w.unresolvable {
			continue
		}
		if time.Since(w.Started.Add(w.Took)) < resolveAfter {
			return textLag(w.String() + ": its answer was lost; the API server is asked in a moment")
		}
		asked := time.Now()
		if !k.resolver.begin(asked, k.informers.Recovered()) {
			return textLag(w.String() + ": its answer was lost, and the API server does not answer yet")
		}
		found, fate, err := k.informers.Resolve(ctx, w.written())
		k.resolver.end(asked, err)
		if err != nil {
			return textLag(w.String() + ": its answer was lost: " + err.Error())
		}
		w.instead, w.resolved, w.unresolvable = found, fate != consistency.Unkept, fate == consistency.Unkept
		w.open = fate == consistency.Open && w.Effect == ledger.Uncertain
	}
	return nil
}

const (
	// resolveAfter is the delay between a lost answer and the question, for a write still in
	// progress.
	resolveAfter  = time.Second
	resolveWithin = 2 * time.Second
	// carriedOutWithin is how long after its request a write without an answer may be carried out.
	carriedOutWithin = 30 * time.Second
	// resolvePause follows an unanswered question: an API server that hangs must not occupy all
	// workers.
	resolvePause = 2 * time.Second
)

// resolver allows one question at a time after an unanswered one, else any number.
type resolver struct {
	unanswered atomic.Pointer[question] // nil: the last question was answered
}

type question struct {
	asked time.Time
	next  time.Time // of the next question
}

// begin reports whether a worker may ask now, and must then call end. recovered is when an informer
// last began to follow the API server.
func (r *resolver) begin(now, recovered time.Time) bool {
	last := r.unanswered.Load()
	if last == nil {
		return true
	}
	if now.Before(last.next) && !recovered.After(last.asked) {
		return false
	}
	return r.unanswered.CompareAndSwap(last, &question{now, now.Add(resolveWithin + time.Second)})
}

func (r *resolver) end(asked time.Time, err error) {
	if err == nil {
		r.unanswered.Store(nil)
		return
	}
	r.unanswered.Store(&question{asked, time.Now().Add(resolvePause)})
}
