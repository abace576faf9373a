// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// incarnation is one process of the operator.
type incarnation struct {
	connection *connection
	op         Operator
}

// process makes the configuration of a program.
func (r *run) process(ctx context.Context, who string) (Process, *connection, context.Context) {
	ctx, end := context.WithCancel(ctx)
	l := &connection{run: r, who: who, rules: fault.NewRules(), end: end, leases: map[string]bool{}}
	own := r.plane.config()
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{l, l.rules.Transport(next)} })
	log := slog.New(slog.NewTextHandler(logWriter{r, who}, nil))
	return Process{Config: own, Logger: log, ControlPlane: onControlPlane()}, l, ctx
}

// operate runs one incarnation of the operator after another.
func (r *run) operate(ctx context.Context, who string) {
	for n := 1; ctx.Err() == nil; n++ {
		if !r.live(ctx, fmt.Sprintf("%s %d", who, n)) {
			return
		}
		if closed(r.down) {
			<-r.resume
		}
		r.soon(r.pace.joins)
		select {
		case <-ctx.Done():
		case <-time.After(r.pace.restart):
		}
	}
}

// live runs an incarnation until its end. It returns false if there can be no other one.
func (r *run) live(ctx context.Context, who string) bool {
	p, l, alive := r.process(ctx, who)
	l.under = true
	r.always(l)
	op, err := r.scenario.Operator(p)
	if err != nil {
		r.fail("Scenario.Operator: %v", err)
		l.kill()
		return false
	}
	if op == nil {
		r.fail("Scenario.Operator returned no operator and no error")
		l.kill()
		return false
	}
	i := &incarnation{l, op}
	r.begins(i)
	defer r.ends(i)
	returned := make(chan error, 1)
	go func() { returned <- op.Run(alive) }()
	returns := func() (ended bool) {
		select {
		case err = <-returned:
			return true
		case <-time.After(ending):
			r.stuck(who)
			return false
		}
	}
	byItself := false
	select {
	case err = <-returned:
		byItself = alive.Err() == nil
	case <-alive.Done():
		if l.crashed() { // the next process does not wait for it
			r.joined.Go(func() { returns() })
		} else if !returns() {
			return false
		}
	}
	if l.crashed() {
		r.plane.died(ctx, l.held())
		return true
	}
	l.kill()
	if byItself {
		r.logf("%s returned: %v", who, err)
		if r.plan.Fault == None {
			r.fail("the operator's Run returned by itself: %v", err)
		}
	}
	return true
}

// stuck prints what goes wrong before the bubble can deadlock.
func (r *run) stuck(who string) {
	text := fmt.Sprintf("%s has not returned from Run %s after the end of its context; let Run end with its context, and join what it starts", who, ending)
	fmt.Fprintf(os.Stderr, "sweep: %s: %s\n", r.plan, text)
	r.fail("%s", text)
}

func (r *run) begins(i *incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alive = append(r.alive, i)
	r.born++
	close(r.changedOp)
	r.changedOp = make(chan struct{})
}

func (r *run) ends(i *incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alive = slices.DeleteFunc(r.alive, func(other *incarnation) bool { return other == i })
}

// processes waits for the first process, and returns those that run now. born counts all.
func (r *run) processes() (alive []*incarnation, born int) {
	for {
		r.mu.Lock()
		alive, born, changed := slices.Clone(r.alive), r.born, r.changedOp
		r.mu.Unlock()
		if len(alive) > 0 || r.waitsForStep() {
			return alive, born
		}
		down := r.down
		if closed(down) {
			down = nil
		}
		select {
		case <-changed:
		case <-down:
		case <-time.After(r.pace.patience):
			return nil, born
		}
	}
}

func (r *run) bornBy() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.born
}

var errNotIdle = errors.New("Idle has not returned")

// idle returns nil if one process is idle: one that waits for a Lease may not be.
func (r *run) idle(ctx context.Context, all []*incarnation, hasty bool) error {
	wait := r.pace.idle
	if hasty && r.plan.Fault.skips() {
		wait /= 10
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	results := make(chan error, len(all))
	for _, i := range all {
		go func() { results <- i.op.Idle(ctx) }()
	}
	err, first := errNotIdle, error(nil)
	defer cancel()
	late := time.After(wait + ending)
	for range all {
		select {
		case first = <-results:
		case <-late:
			r.fail("Idle has not returned %s after the end of its context; let it end with its context", ending)
			return errNotIdle
		}
		if first == nil {
			cancel()
			err = nil
		} else if err != nil {
			err = first
		}
	}
	return err
}
