// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

var errDeadline = errors.New("the Reconcile exceeded its deadline")

type deadlineError time.Duration

func (d deadlineError) Error() string { return fmt.Sprintf("%s of %s", errDeadline, time.Duration(d)) }

func (d deadlineError) Is(target error) bool {
	return target == errDeadline || target == context.DeadlineExceeded
}

// returnWithin is how long a Reconcile may run after its context has ended, before it is reported.
const returnWithin = time.Second

func (o *Options) limits() (report, end time.Duration) {
	report, end = cmp.Or(o.SlowAfter, time.Minute), o.Deadline
	if end <= 0 {
		end = math.MaxInt64
	}
	if report < 0 {
		return math.MaxInt64, end
	}
	return min(report, end), end
}

// watch reports slow Reconciles and ends contexts at their deadline. Its timer is set to the next
// of these times. Once a minute it
// logs the counts of errors without a line, and forgets what is over.
func (t *lead[K]) watch(ctx, work context.Context) {
	timer := time.NewTimer(min(t.controller.o.limits()))
	defer timer.Stop()
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	ended := work.Done()
	var overdue <-chan time.Time
	for {
		select {
		case <-timer.C:
			timer.Reset(t.inspect())
		case <-ended:
			ended, overdue = nil, time.After(returnWithin)
		case <-overdue:
			t.reportStuck(context.Cause(work))
		case <-minute.C:
			t.logFurther()
			t.controller.records.forgetFights(t.controller.now())
		case <-ctx.Done():
			t.logFurther()
			return
		}
	}
}

func (t *lead[K]) inspect() (again time.Duration) {
	c := t.controller
	report, end := c.o.limits()
	again = min(report, end)
	stacks := ""
	now := c.now()
	for _, w := range c.pool.state().workers {
		r := w.run.Load()
		if r == nil {
			continue
		}
		took := now - r.since
		slow := w.reported != r && took >= report
		over := w.overdue != r && took >= end
		if (slow || over) && stacks == "" {
			stacks = run.Stacks()
		}
		if slow {
			w.reported = r
			t.reportSlow(w, r, took, stacks)
		}
		if over {
			w.overdue = r
			r.cancel(deadlineError(c.o.Deadline)) // after its stack was taken
		}
		if w.reported != r {
			again = min(again, report-took)
		}
		if w.overdue != r {
			again = min(again, end-took)
		}
	}
	return again
}

func (t *lead[K]) reportSlow(w *worker[K], r *running[K], took time.Duration, stacks string) {
	c := t.controller
	stack := "it has ended meanwhile"
	if w.run.Load() == r {
		stack = cutStack(stacks, w.goroutine)
	}
	key, id := fmt.Sprint(r.item.Key()), r.id()
	if args, ok := c.repetition.Few("slow", "", "key", key, "reconcileID", id, "took", took.String(), "stack", stack); ok {
		slog.New(t.log).Warn("reconcile is slow", args...)
	}
	c.o.Hook.Send(&hook.Slow{Controller: c.name, Key: key, ReconcileID: id, Took: took, Stack: stack})
}

func (t *lead[K]) reportStuck(cause error) {
	c := t.controller
	stacks := run.Stacks()
	for _, w := range c.pool.state().workers {
		if r := w.run.Load(); r != nil {
			slog.New(t.log).Warn("reconcile ignores the end of its context",
				"key", fmt.Sprint(r.item.Key()), "reconcileID", r.id(),
				"took", (c.now() - r.since).String(), "cause", cause, "stack", cutStack(stacks, w.goroutine))
		}
	}
}

// callIn returns the innermost call in the package of the Reconcile, such as
// operator.(*reconciler).apply (reconciler.go:57), from the stack of a worker, or "".
func callIn(stack string) (at string) {
	lines := strings.Split(stack, "\n")
	in := func(i int) string { // the package
		path, name := lines[i][:strings.LastIndex(lines[i], "/")+1], lines[i][strings.LastIndex(lines[i], "/")+1:]
		name, _, _ = strings.Cut(name, ".")
		return path + name
	}
	own := reflect.TypeFor[Progress]().PkgPath()
	user := ""
	for i := 1; i+1 < len(lines); i += 2 { // a call, and its place; outermost last
		if strings.HasPrefix(lines[i], own+".(*lead[") && strings.Contains(lines[i], ".reconcile(") {
			break
		}
		if in(i) != own {
			user = in(i)
		}
	}
	for i := 1; i+1 < len(lines) && user != ""; i += 2 {
		if in(i) != user {
			continue
		}
		call := strings.TrimPrefix(lines[i], user[:strings.LastIndex(user, "/")+1])
		if n := strings.LastIndexByte(call, '('); n > 0 {
			call = call[:n]
		}
		place, _, _ := strings.Cut(lines[i+1][strings.LastIndex(lines[i+1], "/")+1:], " ")
		return call + " (" + place + ")"
	}
	return ""
}

func cutStack(stacks, goroutine string) string {
	head := goroutine + " "
	_, stack, ok := strings.Cut("\n\n"+stacks, "\n\n"+head)
	if !ok {
		return fmt.Sprintf("not found in %d MiB of all goroutines' stacks", run.MostStacks>>20)
	}
	stack, _, _ = strings.Cut(head+stack, "\n\n")
	return run.Shorten(strings.TrimSpace(stack))
}
