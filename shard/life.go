// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// leaveLimit is how long a member that leaves waits for the adopters of its slots. Then it gives
// its slots up without.
const leaveLimit = 5 * time.Second

// finishLimit is how long a member tries to store its last releases when all its work has returned.
const finishLimit = 2 * time.Second

// life is the loop of a member. In each step, its parts see what has changed, and act.
type life struct {
	*member

	prepared  *preparations
	adoptions *adoptions
	planner   *planner
	reporter  *reporter
}

func newLife(p *process, work context.Context) (*life, error) {
	t := term.FromContext(work)
	version, err := parseVersion(t.Token().ResourceVersion)
	if err != nil {
		return nil, err
	}
	id := slots.ID{Name: p.name, Term: version}
	m := &member{
		process: p, id: id, log: logging.Of(work).With("group", p.requests.String(), "member", id.String()),
		view: slots.NewView(id, p.o.By.String(), time.Now()), spread: rand.N(100 * time.Millisecond), failed: map[string]time.Time{},
	}
	p.saw.Store(0)
	prepared, adopted := newPreparations(m), newAdoptions(m, t)
	return &life{
		member: m, prepared: prepared, adoptions: adopted,
		planner: newPlanner(m, prepared, adopted), reporter: newReporter(m, adopted),
	}, nil
}

// run is the work under the member's Lease. It reports whether the group has no such member any
// more, so that its Lease can be deleted.
func (l *life) run(take, work context.Context, lead term.Lead) (left bool, err error) {
	defer l.reporter.ended()
	defer l.adoptions.wait()
	defer l.prepared.wait()
	running, stop := context.WithCancel(work)
	defer stop()
	leading, end := context.WithCancelCause(work)
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- lead(leading, work) }()

	err, returned := l.serve(running, take, done, end)
	l.adoptions.stopAll()
	l.reporter.lost = work.Err() != nil
	l.reporter.report()
	end(context.Cause(take))
	if !returned {
		err = cmp.Or(err, <-done)
	}
	if work.Err() == nil {
		l.finish(running)
	}
	l.prepared.keep(running, nil)
	return !l.joined(), err
}

// serve runs until the member has left, its Lease is lost, or lead has returned.
func (l *life) serve(work, take context.Context, done <-chan error, end context.CancelCauseFunc) (err error, returned bool) {
	stop := take.Done()
	for {
		pause := l.step(work)
		idle := l.leaving && l.adoptions.idle()
		if l.leaving && (idle || time.Now().After(l.leaveBy)) {
			end(context.Cause(take))
		}
		if err := l.seen.trouble(); idle || err != nil {
			return err, false
		}
		select {
		case <-work.Done():
			return nil, false
		case err := <-done:
			return err, true
		case <-stop:
			stop, l.leaving, l.leaveBy = nil, true, time.Now().Add(leaveLimit)
		case <-l.seen.wake:
		case <-l.owned.Returned():
		case n := <-l.prepared.news:
			l.prepared.note(work, n)
		case <-time.After(pause):
		}
	}
}

// finish releases the last slots and leaves, when no work runs any more.
func (l *life) finish(work context.Context) {
	ctx, cancel := context.WithTimeout(work, finishLimit)
	defer cancel()
	l.leaving, l.leaveBy = true, time.Now()
	for {
		pause := l.step(ctx)
		// After trouble, no write succeeds.
		if !l.joined() || ctx.Err() != nil || l.seen.trouble() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.seen.wake:
		case <-l.owned.Returned():
		case <-time.After(pause):
		}
	}
}

// step sees what has changed, and stores at most one new assignment. It returns the pause until the
// next step, unless something happens before.
func (l *life) step(ctx context.Context) time.Duration {
	if news, err := l.see(); news {
		l.reporter.trouble(err)
	}
	if a := l.assignment(); a != nil && !l.leaving {
		l.prepared.keep(ctx, l.adoptions.wanted(a))
	}
	l.adoptions.follow(l.prepared.ready)
	pause := l.planner.step(ctx)
	l.reporter.report()
	return pause
}
