// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// errDeadline is the cause of a context that is over the deadline of its Reconcile.
var errDeadline = errors.New("the Reconcile is over its deadline")

// deadlineError is errDeadline with the deadline. For callers that ask it is a context.DeadlineExceeded.
type deadlineError time.Duration

func (d deadlineError) Error() string { return fmt.Sprintf("%s of %s", errDeadline, time.Duration(d)) }

// Is implements what errors.Is asks for.
func (d deadlineError) Is(target error) bool {
	return target == errDeadline || target == context.DeadlineExceeded
}

// watchdog looks after the Reconciles that run.
type watchdog[K comparable] struct {
	name, run string // of the controller
	o         *Options
	workers   *workers[K]
	now       func() time.Duration
	lines     *fewLines
}

// watch reports Reconciles that are slow, and ends the contexts of those that are over their
// deadline, until ctx is done (C9). It looks when the next one may be.
func (d *watchdog[K]) watch(ctx context.Context, log *slog.Logger) {
	timer := time.NewTimer(d.patience())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(d.inspect(log))
		case <-ctx.Done():
			return
		}
	}
}

// limits returns after how long a Reconcile is reported, and after how long its context ends.
func (d *watchdog[K]) limits() (report, end time.Duration) {
	report, end = d.o.SlowAfter, d.o.Deadline
	if end <= 0 {
		end = math.MaxInt64
	}
	if report < 0 {
		return math.MaxInt64, end
	}
	return min(report, end), end
}

// patience is how long it takes at least until a Reconcile that begins now concerns the watchdog.
func (d *watchdog[K]) patience() time.Duration { return min(d.limits()) }

// slow is a Reconcile that has come to be over a limit.
type slow[K comparable] struct {
	slot        *slot[K]
	run         *running[K]
	took        time.Duration
	report, end bool // which one
}

// inspect looks at what runs, and returns after how long it has to again.
func (d *watchdog[K]) inspect(log *slog.Logger) (again time.Duration) {
	var found []slow[K]
	again = d.patience()
	now := d.now()
	slots, _ := d.workers.all()
	for _, s := range slots {
		f, soon := d.look(s, now)
		again = min(again, soon)
		if f.report || f.end {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return again
	}
	stacks := allStacks()
	for i := range found {
		f := &found[i]
		if f.report {
			d.tellSlow(log, f, stacks)
		}
		if f.end {
			f.run.cancel(deadlineError(d.o.Deadline)) // now that it was seen where it is
		}
	}
	return again
}

// look says what a worker does if that has come to be over a limit since the last time, and after how long it will be.
func (d *watchdog[K]) look(s *slot[K], now time.Duration) (found slow[K], again time.Duration) {
	report, end := d.limits()
	again = math.MaxInt64
	r := s.run.Load()
	if r == nil {
		return found, again
	}
	found = slow[K]{slot: s, run: r, took: now - r.since}
	found.report = s.reported != r && found.took >= report
	found.end = s.ended != r && found.took >= end
	if found.report {
		s.reported = r
	}
	if found.end {
		s.ended = r
	}
	if s.reported != r {
		again = report - found.took
	}
	if s.ended != r {
		again = min(again, end-found.took)
	}
	return found, again
}

// tellSlow reports a Reconcile with the stack of its goroutine.
func (d *watchdog[K]) tellSlow(log *slog.Logger, f *slow[K], stacks []byte) {
	stack := "it has ended meanwhile"
	if f.slot.run.Load() == f.run {
		stack = cutStack(stacks, f.slot.goroutine)
	}
	key, id := f.run.item.Key(), reconcileID(d.run, f.run.item.Delivery())
	if args, ok := d.lines.next("key", fmt.Sprint(key), "reconcileID", id, "took", f.took.String(), "stack", stack); ok {
		log.Warn("a reconcile is slow", args...)
	}
	if d.o.Hooks.Slow != nil {
		d.o.Hooks.Slow(hook.Slow{Controller: d.name, Key: fmt.Sprint(key), ReconcileID: id, Took: f.took, Stack: stack})
	}
}

// heed is how long a Reconcile may take to return when its context has ended.
const heed = time.Second

// watchEnd reports the Reconciles that do not heed the end of work: nobody else says what keeps a process from stopping. It returns
// when ctx is done.
func (d *watchdog[K]) watchEnd(ctx, work context.Context, log *slog.Logger) {
	select {
	case <-work.Done():
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(heed)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	stacks := allStacks()
	slots, _ := d.workers.all()
	for _, s := range slots {
		if r := s.run.Load(); r != nil {
			log.Warn("a reconcile does not heed the end of its context", "key", fmt.Sprint(r.item.Key()), "reconcileID", reconcileID(d.run, r.item.Delivery()),
				"took", (d.now() - r.since).String(), "cause", context.Cause(work), "stack", cutStack(stacks, s.goroutine))
		}
	}
}

const (
	mostStacks = 64 << 20 // bytes of all goroutines' stacks that are looked through
	mostStack  = 16 << 10 // bytes of one that are reported
)

// allStacks returns the stacks of all goroutines.
func allStacks() []byte {
	for size := 256 << 10; ; size *= 2 {
		buf := make([]byte, size)
		n := runtime.Stack(buf, true)
		if n < size || size >= mostStacks {
			return buf[:n]
		}
	}
}

// cutStack returns the stack that begins like that.
func cutStack(stacks, head []byte) string {
	i := 0
	if !bytes.HasPrefix(stacks, head) {
		i = bytes.Index(stacks, append([]byte("\n\n"), head...)) + 2
	}
	if i == 1 {
		return fmt.Sprintf("not found in %d MiB of all goroutines' stacks", mostStacks>>20)
	}
	stack, _, _ := bytes.Cut(stacks[i:], []byte("\n\n"))
	if len(stack) > mostStack {
		return string(stack[:mostStack]) + "\n...more was left out"
	}
	return string(bytes.TrimSpace(stack))
}
