// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
)

// runAll starts the programs, and does the steps.
func (r *run) runAll(ctx context.Context, cfg *rest.Config) {
	for i, make := range r.scenario.Beside {
		p, l, _ := r.process(ctx, cfg, fmt.Sprintf("beside %d", i))
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
	r.joined.Go(func() { r.operate(ctx, cfg) })
	p, l, _ := r.process(ctx, cfg, "user")
	defer l.rules.Stop()
	c, err := client.New(p.Config, client.Options{Scheme: r.scenario.Scheme, FieldOwner: "sweep-user"})
	if err != nil {
		r.fail("the client of the steps: %v", err)
		return
	}
	defer c.Close()
	if !r.converge(ctx, "the start") || !r.steps(ctx, c) {
		return
	}
	r.watchTail()
}

// watchTail looks for writes after the last step.
func (r *run) watchTail() {
	changes, writes := r.history.count(), r.written()
	r.pause(tail)
	synctest.Wait()
	all, did := r.history.all(), r.written()
	if n := len(all) - changes; n > 0 {
		r.record.late = fmt.Sprintf("%d changes, the last is %s", n, all[len(all)-1])
	} else if n := len(did) - len(writes); n > idleWrites {
		r.record.late = fmt.Sprintf("%d writes of the operator without an effect, the last is %s", n, did[len(did)-1].name)
	}
}

func (r *run) written() []*write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.record.writes)
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
		crashed := closed(r.down)
		r.logf("step %s", step.Name)
		if err := step.Do(ctx, c); err != nil {
			r.fail("step %s: %v", step.Name, err)
			return false
		}
		if waits && (crashed && !all || n == len(r.scenario.Steps)-1) {
			waits = false
			close(r.resume)
		}
		if !r.converge(ctx, "step "+step.Name) {
			return false
		}
		if r.plan.Fault == Restart {
			r.fire()
			r.current().connection.kill()
			if !r.converge(ctx, "the restart after step "+step.Name) {
				return false
			}
		}
		r.record.after = append(r.record.after, r.history.count())
	}
	return true
}

// converge waits until the operator is idle, and nothing changes any more.
func (r *run) converge(ctx context.Context, what string) bool {
	began, changed := time.Now(), time.Now()
	for {
		i := r.current()
		if i == nil {
			return false // its creation failed
		}
		idleCtx, cancel := context.WithTimeout(ctx, quiet)
		err := i.op.Idle(idleCtx)
		cancel()
		synctest.Wait()
		if closed(r.down) && !closed(r.resume) {
			return true
		}
		before := r.history.count()
		r.pause(quiet)
		synctest.Wait()
		switch {
		case r.history.count() != before:
			changed = time.Now()
		case r.busy() || r.current() != i:
		case err == nil:
			return true
		case time.Since(changed) > still:
			r.logf("after %s, the operator is not idle: %v", what, err)
			return true
		}
		if time.Since(began) > patience {
			all := r.history.all()
			r.fail("after %s, the operator has not converged in %s; the last change is %s; Idle says: %v", what, patience, all[len(all)-1], err)
			return false
		}
	}
}

func (r *run) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending > 0 || time.Now().Before(r.settles)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
