// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"fmt"
	"time"

	"github.com/setpoint-dev/setpoint/client"
)

// runAll starts the programs, and does the steps.
func (r *run) runAll(ctx context.Context) {
	for i, make := range r.scenario.Beside {
		p, l, _ := r.process(ctx, fmt.Sprintf("beside %d", i))
		program, err := make(p)
		if err != nil {
			r.fail("Scenario.Beside[%d]: %v", i, err)
			return
		}
		r.joined.Go(func() {
			defer l.rules.Stop()
			if err := program.Run(ctx); err != nil && ctx.Err() == nil {
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
	changes, writes := r.history.count(), r.written()
	r.pause(r.pace.tail)
	r.plane.settle()
	all, did := r.history.all(), r.written()
	if n := len(all) - changes; n > 0 {
		r.fail("in the %s after the last step, something is still written: %d changes, the last is %s", r.pace.tail, n, all[len(all)-1])
	} else if n := len(did) - len(writes); n > idleWrites {
		r.fail("in the %s after the last step, something is still written: %d writes of the operator without an effect, the last is %s", r.pace.tail, n, did[len(did)-1].name)
	}
}

// steps does the steps. It returns false if one fails or does not converge.
func (r *run) steps(ctx context.Context, c *client.Client) bool {
	all := r.plan.Fault == CrashThenAll
	waits := all || r.plan.Fault == CrashThenStep // for the crash, or for the steps after it
	defer func() {
		if waits {
			close(r.resume)
		}
	}()
	for n, step := range r.scenario.Steps {
		crashed, hurried := closed(r.down), closed(r.hasty)
		r.logf("step %s", step.Name)
		if err := step.Do(ctx, c); err != nil {
			r.fail("step %s: %v", step.Name, err)
			return false
		}
		last := n == len(r.scenario.Steps)-1
		if waits && (crashed && !all || last) {
			waits = false
			close(r.resume)
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
			return true
		case time.Since(changed) > r.pace.still:
			r.logf("after %s, the operator is not idle: %v", what, err)
			return true
		}
		if time.Since(began) > r.pace.patience {
			all := append(r.history.all(), change{})
			r.fail("after %s, the operator has not converged in %s; the last change is %s; Idle says: %v", what, r.pace.patience, all[max(0, len(all)-2)], err)
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
