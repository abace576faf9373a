// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/why"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Events of retries after certain errors. Retries after other errors have workqueue.EventRetry.
const (
	eventRetryConflict      = "RetryConflict"      // another client changed the object
	eventRetryAlreadyExists = "RetryAlreadyExists" // the object to create exists
	eventRetryAfter         = "RetryAfter"         // see RetryAfter
	eventRetryDeadline      = "RetryDeadline"      // the Reconcile exceeded its deadline
	eventRetryStale         = "RetryStale"         // together with another error
	eventRetryPanic         = "RetryPanic"
	eventRetryTerminating   = "RetryTerminating" // the namespace is being deleted
)

// ending is how one Reconcile ended. Only judge calls the error's methods, which may panic.
type ending struct {
	result  Result
	outcome hook.Outcome
	err     error
	text    string
	again   workqueue.RetryOptions
	reason  why.Reason
	normal  bool // level info
	gaveUp  bool
}

func (t *lead[K]) givesUp(r *running[K], end *ending) bool {
	most := t.controller.o.MaxAttempts
	if end.again.Event == eventRetryTerminating {
		return false // the deletion of the namespace ends it
	}
	return most > 0 && r.item.Attempt() >= most && (end.outcome == hook.Failed || end.outcome == hook.Panicked)
}

func aborted(err error) ending {
	return ending{outcome: hook.Panicked, err: err, text: err.Error(), reason: why.Panicked, again: workqueue.RetryOptions{Event: eventRetryPanic}}
}

func (r *running[K]) judge(result Result, err error) ending {
	if wrong := result.settle(); wrong != nil {
		err = errors.Join(err, wrong)
	}
	end := ending{result: result, outcome: hook.Failed, err: err}
	switch {
	case err == nil && result.RequeueAfter > 0:
		end.outcome = hook.RequeuedAfter
	case err == nil:
		end.outcome = hook.Succeeded
	case r.Err() != nil && !errors.Is(context.Cause(r), errDeadline):
		// err may be a consequence, whatever it is.
		end.outcome = hook.Interrupted
	// While inputs come and go, a Reconcile may read one that was just removed.
	case IsTerminal(err), errors.As(err, new(*consistency.UndeclaredError)) && !r.of.controller.inputs.altered.Load():
		end.outcome = hook.FailedTerminally
	case consistsOf(err, isStale):
		end.outcome = hook.Stale
	}
	if err != nil {
		end.text, end.reason, end.again = err.Error(), reasonOf(r, end.outcome, err), howToRetry(r, result, err)
		end.normal = consistsOf(err, func(err error) bool { return isNormal(err) || r.wroteToMissing(err) }) || isFenced(r, err)
	}
	return end
}

func reasonOf(ctx context.Context, outcome hook.Outcome, err error) why.Reason {
	switch {
	case outcome == hook.FailedTerminally:
		return why.Terminal
	case errors.Is(context.Cause(ctx), errDeadline):
		return why.TimedOut
	case errors.Is(err, term.ErrFenced):
		return why.Fenced
	default:
		return why.OfError(err)
	}
}

func (t *lead[K]) settle(r *running[K], end ending) {
	c := t.controller
	p := t.leave(r, end)
	if c.o.MaxInterrupts > 0 {
		movedOn := errors.As(context.Cause(r), new(*InterruptedError))
		c.noteInterrupt(r.item.Key(), end.outcome == hook.Interrupted, movedOn)
	}
	item := r.item
	if end.result.Class != nil {
		item = item.InClass(*end.result.Class)
	}
	var lost error
	switch end.outcome {
	case hook.Succeeded:
		lost = item.Done()
	case hook.RequeuedAfter:
		lost = item.After(end.result.RequeueAfter)
	case hook.FailedTerminally:
		r.log.Error("reconcile failed; not retried", "err", end.err)
		lost = item.Done()
	case hook.Stale:
		t.logEnd(r, slog.LevelInfo, "reconcile returned Stale; the key waits until its caches are current", end)
		c.consistency.parkStale(item, p)
	case hook.Interrupted:
		r.log.Info("reconcile interrupted", "err", end.err, "cause", context.Cause(r))
		lost = item.Release()
	default:
		lost = t.retry(r, item, end)
	}
	if lost != nil {
		r.log.Error("could not settle the key", "err", lost)
	}
	c.expireLevel(item.Key())
}

// leave records what the Reconcile leaves behind, before another worker can take the key. It
// returns nil for nothing, but never after a failure or Stale.
func (t *lead[K]) leave(r *running[K], end ending) *lastRun {
	c := t.controller
	failed := end.outcome == hook.Failed || end.outcome == hook.Panicked
	stale := end.outcome == hook.Stale
	wrote := r.wrote()
	if !failed && !stale && wrote == nil && end.outcome != hook.FailedTerminally && (r.past == nil || !r.past.in(writeGivenUp)) {
		return nil
	}
	p := &lastRun{delivery: r.item.Delivery(), stale: stale, began: r.since}
	if r.past != nil {
		p.writes = r.past.carry()
	}
	if wrote != nil {
		p.answers = wrote
		p.refresh()
		if _, left := wrote.LeftOut(); left > 0 {
			p.lost = fmt.Errorf("%d of its writes: more than a ledger keeps", left)
		}
	}
	p.visible = visibleOf(r.past)
	if failed {
		p.made = p.versions()
		switch r.by {
		case perhaps:
			p.hasty = r.past.hasty + 1
		case theKey:
			p.hasty = r.past.hasty
		}
	}
	if end.err != nil && end.outcome != hook.Interrupted && !stale {
		p.failure = &Failure{
			At: time.Now(), ReconcileID: r.id(), Err: end.text, Reason: end.reason,
			Terminal: end.gaveUp || end.outcome == hook.FailedTerminally,
		}
		if end.gaveUp {
			p.failure.Reason = why.GaveUp
		}
	}
	if c.o.ReadYourWrites < 0 {
		p.answers = nil // only interrupts need the writes
		own := p.own()
		for i := range own {
			own[i].state = writeUnawaited
		}
		if c.o.MaxInterrupts <= 0 {
			p.writes = p.writes[:len(p.writes)-len(own)]
		}
	}
	if !stale {
		c.consistency.requeueWhenSeen(r.item.Key(), p)
	}
	p.backsOff = failed && !end.gaveUp && end.again.Exactly == 0 && end.again.NotBefore == 0
	if !stale && !p.empty() {
		t.leaveFight(r, p.own())
		c.records.put(r.item.Key(), p)
		c.records.sweep(t.forget)
	}
	if c.consistency.missed(p) { // while the Reconcile ran
		c.consistency.addMissed(r.item.Key())
	}
	return p
}

// carry returns the writes that were given up, for the next Reconcile's list.
func (p *lastRun) carry() (given []pendingWrite) {
	for _, w := range p.writes {
		if w.state == writeGivenUp {
			w.carried = true
			given = append(given, w)
		}
	}
	return given
}

func (t *lead[K]) forget(key K, r *record[K]) {
	c := t.controller
	if r.past != nil && c.consistency.isOver(r.past) {
		if r.past.unnotify != nil {
			r.past.unnotify()
		}
		r.past = nil
	}
	if r.spin.known && r.spin.over(c.now()) {
		r.spin = spin{}
	}
	if f := r.fight; f != nil && (f.row == 0 && r.past == nil || f.over(c.now())) {
		r.fight = nil
	}
}

func (t *lead[K]) retry(r *running[K], item workqueue.Item[K], end ending) (lost error) {
	level, what, more := slog.LevelError, "reconcile failed", []any(nil)
	var panicked *PanicError
	switch {
	case end.outcome == hook.Panicked && errors.As(end.err, &panicked):
		what, more = "reconcile panicked", []any{"stack", string(panicked.Stack)}
	case end.normal:
		level, what = slog.LevelInfo, "reconcile will be retried"
	}
	if end.gaveUp {
		r.log.Error("reconcile failed too often; not retried until its next event", append([]any{"err", end.err}, more...)...)
		return item.GiveUp(end.err)
	}
	delay, lost := item.RetryWith(end.err, end.again)
	t.logEnd(r, level, what, end, append([]any{"retryAfter", delay.String()}, more...)...)
	return lost
}

func (t *lead[K]) logEnd(r *running[K], level slog.Level, what string, end ending, more ...any) {
	about := append([]any{"err", end.err}, more...)
	if cause := context.Cause(r); cause != nil { // err may only report that the context ended
		about = append(about, "cause", cause)
	}
	if args, ok := t.controller.failures.Few(fmt.Sprint(r.item.Key()), end.text, about...); ok {
		r.log.Log(r, level, what, args...)
	}
}

func (t *lead[K]) logFurther() {
	if args, ok := t.controller.failures.Further(); ok {
		slog.New(t.log).Warn("errors of further groups are counted, not logged", args...)
	}
}

// longestAsked is the longest pause that an API server may ask for. Flow control asks for up to
// half a minute; an hour comes from a proxy, or is a mistake.
const longestAsked = time.Minute

// terminatingPause is the pause of a key whose namespace is being deleted. The deletion of its
// object ends it.
const terminatingPause = 30 * time.Second

func howToRetry(ctx context.Context, result Result, err error) workqueue.RetryOptions {
	again := workqueue.RetryOptions{NotBefore: result.RequeueAfter}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		again.NotBefore = max(again.NotBefore, min(time.Duration(seconds)*time.Second, longestAsked))
	}
	var at *retryAfterError
	switch {
	case errors.As(err, &at):
		again.Exactly, again.Event = max(at.after, again.NotBefore), eventRetryAfter
	case consistsOf(err, isTerminating):
		again.Exactly, again.Event = max(terminatingPause, again.NotBefore), eventRetryTerminating
	case errors.Is(context.Cause(ctx), errDeadline):
		again.Event = eventRetryDeadline
	case errors.As(err, new(*staleError)): // joined with another error
		again.Event = eventRetryStale
	case apierrors.IsConflict(err):
		again.Event = eventRetryConflict
	case apierrors.IsAlreadyExists(err):
		again.Event = eventRetryAlreadyExists
	}
	return again
}
