// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/slots"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// leaveLimit is how long a member that leaves waits for the adopters of its slots. Then it gives
// its slots up without.
const leaveLimit = 5 * time.Second

// finishLimit is how long a member tries to store its last releases when all its work has returned.
const finishLimit = 2 * time.Second

// life is one life of this member: the time for which the process holds the member's Lease. Only
// the goroutine of run uses it.
type life struct {
	*Group

	id     slots.ID
	term   *term.Term // of the member's Lease
	log    *slog.Logger
	group  sight // of the group's Lease, as the view has it
	view   *slots.View
	spread time.Duration // so that not all members acquire a Lease at once

	prepared  preparations
	tenancies map[slots.Slot]*tenancy
	returned  chan struct{}  // has an element when work of a stopped slot may have returned
	awaiting  sync.WaitGroup // goroutines that send to returned

	met      map[slots.ID]time.Time // when this life saw the members first
	proofs   map[slots.ID]proof     // of deaths, not stored yet
	tried    map[string]time.Time   // when this life last tried to acquire the Leases of others
	swept    time.Time              // when it last tried to delete one
	reported reported
	audits   audits

	renewed  time.Time // when this life made the last new assignment
	leaving  bool
	leaveBy  time.Time
	noMember bool // run has removed this member, or it never was one
}

func (g *Group) newLife(work context.Context) (*life, error) {
	t := term.Of(work)
	version, err := parseVersion(t.Token().ResourceVersion)
	if err != nil {
		return nil, err
	}
	_, name, _ := strings.Cut(g.elector.String(), "/")
	id := slots.ID{Name: name, Term: version}
	log := logging.Of(work).With("group", g.String(), "member", id.String())
	return &life{
		Group: g, id: id, term: t, log: log, view: slots.NewView(id, g.o.By.String(), time.Now()),
		spread: rand.N(100 * time.Millisecond), tenancies: map[slots.Slot]*tenancy{}, returned: make(chan struct{}, 1),
		met: map[slots.ID]time.Time{}, prepared: newPreparations(g.o.Keeper), proofs: map[slots.ID]proof{}, tried: map[string]time.Time{}, noMember: true,
		reported: reported{unserved: map[string]bool{}, owned: map[slots.Slot]*tenancy{}, failed: map[string]time.Time{}},
	}, nil
}

// run is the work under the member's Lease. It reports whether the group has no such member any
// more, so that its Lease can be deleted.
func (l *life) run(take, work context.Context, lead leaderelection.Lead) (left bool, err error) {
	l.saw.Store(0)
	defer l.awaiting.Wait()
	running, stop := context.WithCancel(work)
	defer stop()
	leading, end := context.WithCancelCause(work)
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- lead(leading, work) }()

	err, returned := l.serve(running, take, done, end)
	l.stopAll()
	l.reported.lost = work.Err() != nil
	l.report()
	end(context.Cause(take))
	if !returned {
		err = <-done
	}
	if work.Err() == nil {
		l.finish(running)
	}
	if work.Err() != nil {
		l.prepare(running, nil)
	}
	return l.noMember, err
}

// serve runs until the member has left, its Lease is lost, or lead has returned.
func (l *life) serve(work, take context.Context, done <-chan error, end context.CancelCauseFunc) (err error, returned bool) {
	stop := take.Done()
	for {
		pause := l.step(work)
		if l.leaving && (l.idle() || time.Now().After(l.leaveBy)) {
			end(context.Cause(take))
		}
		if l.leaving && l.idle() {
			return nil, false
		}
		select {
		case <-work.Done():
			return nil, false
		case err := <-done:
			return err, true
		case <-stop:
			stop, l.leaving, l.leaveBy = nil, true, time.Now().Add(leaveLimit)
		case <-l.seen.wake:
		case <-l.returned:
		case n := <-l.prepared.news:
			l.note(work, n)
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
		if l.noMember || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.seen.wake:
		case <-l.returned:
		case <-time.After(pause):
		}
	}
}

// patience is the longest pause between two looks at the group.
const patience = time.Second

// step sees what has changed, and stores at most one new assignment. It returns the pause until the
// next step, unless something happens before.
func (l *life) step(ctx context.Context) time.Duration {
	l.see()
	if a, _ := l.view.Assignment(); a != nil && !l.leaving {
		l.prepare(ctx, l.wanted(a))
	}
	l.follow()
	pause := l.decide(ctx)
	l.report()
	return pause
}

// see passes the newest record to the view.
func (l *life) see() {
	l.group = l.seen.look(l.name)
	if l.group.version == 0 || l.group.version == l.saw.Load() {
		return
	}
	r, err := recordOf(l.group.lease, l.group.version)
	if err != nil {
		l.trouble(err)
		return
	}
	l.trouble(l.view.See(r, time.Now()))
	l.saw.Store(r.Version)
	a, _ := l.view.Assignment()
	l.noMember = a == nil || !a.Joined(l.id)
	if a == nil {
		return
	}
	for _, m := range a.Members() {
		if _, ok := l.met[m.ID]; !ok {
			l.met[m.ID] = time.Now()
		}
	}
}
