// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/client"
)

// runAll starts the programs, and does the steps.
func (r *run) runAll(ctx context.Context) {
	for i, make := range r.scenario.Beside {
		p, l, _ := r.process(ctx, fmt.Sprintf("beside %d", i))
		program, err := make(p)
		if err == nil && program == nil {
			err = errors.New("it returned no program and no error")
		}
		if err != nil {
			r.fail("Scenario.Beside[%d]: %v", i, err)
			return
		}
		r.joined.Go(func() {
			defer l.rules.Stop()
			if err := program.Run(ctx); ctx.Err() == nil {
				r.fail("Run of Scenario.Beside[%d] returned: %v", i, err)
			}
		})
	}
	r.joined.Go(func() { r.operate(ctx, "operator") })
	p, l, _ := r.process(ctx, user)
	defer l.rules.Stop()
	c, err := client.New(p.Config, client.Options{Scheme: r.scenario.Scheme, FieldOwner: "sweep-user"})
	if err != nil {
		r.fail("the client of the steps: %v", err)
		return
	}
	defer c.Close()
	if !r.converge(ctx, "the start", false) {
		return
	}
	if r.plan.Fault == HandOver {
		r.joined.Go(func() { r.operate(ctx, "standby") })
		r.soon(r.pace.joins)
		if !r.converge(ctx, "the start of a standby", false) {
			return
		}
	}
	if !r.steps(ctx, c) {
		return
	}
	r.watchTail()
}

// watchTail looks for writes after the last step.
func (r *run) watchTail() {
	changes, writes := r.history.count(), len(r.written())
	r.pause(r.pace.tail)
	r.plane.settle()
	all, did := r.history.all(), r.written()[writes:]
	if n := len(all) - changes; n > 0 {
		r.fail("in the %s after the last step, something is still written: %d changes, the last is %s", r.pace.tail, n, all[len(all)-1])
		return
	}
	count := map[string]int{}
	for _, w := range did {
		count[w.name]++
		if count[w.name] == int(r.pace.tail/time.Second)+idleWrites {
			r.fail("in the %s after the last step, the operator writes more than once a second, without an effect: %s", r.pace.tail, w.name)
		}
	}
}

// steps does the steps. It returns false if one fails or does not converge.
func (r *run) steps(ctx context.Context, c *client.Client) bool {
	all := r.plan.Fault == CrashThenAll
	waits := all || r.plan.Fault == CrashThenStep // for the crash, or for the steps after it
	defer func() {
		if waits {
			r.up()
		}
	}()
	for n, step := range r.scenario.Steps {
		crashed, hurried := closed(r.down), closed(r.hasty)
		r.logf("step %s", step.Name)
		r.beginsStep()
		switch err := r.do(ctx, step, c); {
		case err == nil:
		case r.plan.Fault.skips() && apierrors.IsNotFound(err): // the operator has not made it
			r.logf("step %s: %v", step.Name, err)
		default:
			r.fail("step %s: %v", step.Name, err)
			return false
		}
		last := n == len(r.scenario.Steps)-1
		if waits && (crashed && !all || last) {
			waits = false
			r.up()
		}
		if !r.converge(ctx, "step "+step.Name, !last && !hurried) {
			return false
		}
		if r.plan.Fault == Restart {
			r.fire()
			alive, _ := r.processes()
			for _, i := range alive {
				i.connection.kill()
			}
			if !r.converge(ctx, "the restart after step "+step.Name, false) {
				return false
			}
		}
		r.record.after = append(r.record.after, r.history.newest())
	}
	return true
}

// up lets the next process begin.
func (r *run) up() { r.upOnce.Do(func() { close(r.resume) }) }

// do does a step. An operator that is down comes back if the step waits for it.
func (r *run) do(ctx context.Context, step Step, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 6*r.pace.patience)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		err := errors.New("it has ended its goroutine: let it return an error, and not fail the test")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("it panicked: %v\n%s", p, debug.Stack())
			}
			result <- err
		}()
		err = step.Do(ctx, c)
	}()
	for ctx.Err() == nil {
		select {
		case err := <-result:
			return err
		case <-ctx.Done():
		case <-time.After(r.pace.joins):
			if r.waitsForStep() {
				r.up()
			}
		}
	}
	select {
	case err := <-result:
		return err
	case <-time.After(ending):
		return fmt.Errorf("it has not returned %s after the end of its context; let it end with its context", ending)
	}
}

// converge waits until the operator is idle, and nothing changes any more, or until the next step
// may be done.
func (r *run) converge(ctx context.Context, what string, hasty bool) bool {
	began, changed := time.Now(), time.Now()
	for {
		alive, born := r.processes()
		if r.waitsForStep() {
			return true
		}
		if len(alive) == 0 {
			r.fail("after %s, there was no process of the operator for %s", what, r.pace.patience)
			return false
		}
		err := r.idle(ctx, alive, hasty)
		r.plane.settle()
		before := r.history.count()
		if hasty {
			r.pause(r.pace.quiet, r.hasty)
		} else {
			r.pause(r.pace.quiet)
		}
		r.plane.settle()
		switch {
		case r.waitsForStep() || hasty && closed(r.hasty):
			return true
		case r.history.count() != before:
			changed = time.Now()
		case r.busy() || r.bornBy() != born:
		case err == nil:
			r.record.failing = nil
			return true
		case time.Since(changed) > r.pace.still:
			r.logf("after %s, the operator is not idle: %v", what, err)
			r.record.failing = err
			r.record.notIdle = append(r.record.notIdle, fmt.Sprintf("after %s, the operator is not idle: %v", what, err))
			return true
		}
		if time.Since(began) > r.pace.patience {
			last := "nothing has changed"
			if all := r.history.all(); len(all) > 0 {
				last = "the last change is " + all[len(all)-1].String()
			}
			r.fail("after %s, the operator has not converged in %s; %s; Idle says: %v", what, r.pace.patience, last, err)
			return false
		}
	}
}

// waitsForStep reports whether the operator is down until the next step.
func (r *run) waitsForStep() bool { return closed(r.down) && !closed(r.resume) }

func (r *run) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending > 0 || time.Now().Before(r.settles)
}
