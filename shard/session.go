// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// leaveLimit is how long a member that leaves waits for the next owners of its slots. Then it gives
// its slots up without.
const leaveLimit = 5 * time.Second

// finishLimit is how long a member tries to store its last releases when all its work has returned.
const finishLimit = 2 * time.Second

// session is the loop of a member. In each step, its parts see what has changed, and act.
type session struct {
	m *member

	prepared  *preparations
	ownership *ownership
	planner   *planner
	reporter  *reporter
}

func newSession(p *process, work context.Context) (*session, error) {
	t := fence.FromContext(work)
	version, err := parseVersion(t.Token().ResourceVersion)
	if err != nil {
		return nil, err
	}
	id := slots.ID{Name: p.name, Term: version}
	m := &member{
		process: p, id: id, log: logging.Of(work).With("group", p.requests.String(), "member", id.String()),
		view: slots.NewView(id, p.o.Partitioner.String(), time.Now()), spread: rand.N(100 * time.Millisecond), failed: map[string]time.Time{},
	}
	p.seenVersion.Store(0)
	prepared, acquired := &preparations{m: m, done: map[slots.Slot]bool{}, news: make(chan preparation)}, newOwnership(m, t)
	return &session{
		m: m, prepared: prepared, ownership: acquired,
		planner:  newPlanner(m, prepared, acquired),
		reporter: &reporter{m: m, ownership: acquired, unserved: map[string]bool{}, begun: map[slots.Slot]*owned.Slot{}},
	}, nil
}

// run is the work under the member's Lease. It reports whether the group has no such member any
// more, so that its Lease can be deleted.
func (l *session) run(take, work context.Context, lead term.Lead) (left bool, err error) {
	defer l.reporter.ended()
	defer l.ownership.wait()
	defer l.prepared.waiting.Wait()
	running, stop := context.WithCancel(work)
	defer stop()
	leading, end := context.WithCancelCause(work)
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- lead(leading, work) }()

	err, returned := l.serve(running, take, done, end)
	l.ownership.stopAll()
	l.reporter.lost = work.Err() != nil
	l.reporter.report(work)
	end(context.Cause(take))
	if !returned {
		err = cmp.Or(err, <-done)
	}
	if work.Err() == nil {
		l.finish(running)
	}
	l.prepared.keep(running, nil)
	return !l.m.joined(), err
}

// serve runs until the member has left, its Lease is lost, or lead has returned.
func (l *session) serve(work, take context.Context, done <-chan error, end context.CancelCauseFunc) (err error, returned bool) {
	stop := take.Done()
	for {
		pause := l.step(work)
		idle := l.m.leaving && l.ownership.idle()
		if l.m.leaving && (idle || time.Now().After(l.m.leaveBy)) {
			end(context.Cause(take))
		}
		if err := l.m.registry.trouble(); idle || err != nil {
			return err, false
		}
		select {
		case <-work.Done():
			return nil, false
		case err := <-done:
			return err, true
		case <-stop:
			stop, l.m.leaving, l.m.leaveBy = nil, true, time.Now().Add(leaveLimit)
		case <-l.m.registry.wake:
		case <-l.m.owned.Returned():
		case n := <-l.prepared.news:
			l.prepared.note(work, n)
		case <-time.After(pause):
		}
	}
}

// finish releases the last slots and leaves, when no work runs any more.
func (l *session) finish(work context.Context) {
	ctx, cancel := context.WithTimeout(work, finishLimit)
	defer cancel()
	l.m.leaving, l.m.leaveBy = true, time.Now()
	for {
		pause := l.step(ctx)
		// After trouble, no write succeeds.
		if !l.m.joined() || ctx.Err() != nil || l.m.registry.trouble() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.m.registry.wake:
		case <-l.m.owned.Returned():
		case <-time.After(pause):
		}
	}
}

// step sees what has changed, and stores at most one new assignment. It returns the pause until the
// next step, unless something happens before.
func (l *session) step(ctx context.Context) time.Duration {
	if news, err := l.m.see(); news {
		l.reporter.trouble(err)
	}
	if a := l.m.assignment(); a != nil && !l.m.leaving {
		l.prepared.keep(ctx, l.ownership.wanted(a))
	}
	l.ownership.update(l.prepared.ready)
	pause := l.planner.step(ctx)
	l.reporter.report(ctx)
	return pause
}
