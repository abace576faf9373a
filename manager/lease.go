// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// Lease is one Lease of a process, with the controllers and functions that run while the process
// holds it. [Manager.AddLease] makes one. Terms of several Leases begin and end independently. All
// methods are safe for concurrent use.
type Lease struct {
	*group

	leadership leadership
	leads      string // in errors and profiles
}

// leadership is when the work of a Lease runs: elected, always or everywhere.
type leadership interface {
	run(ctx context.Context, l *Lease, lead term.Lead) error
}

// always is the leadership without a Coordinator: this process leads.
type always struct{}

func (always) run(ctx context.Context, _ *Lease, lead term.Lead) error {
	return lead(ctx, context.WithoutCancel(ctx))
}

// everywhere is the leadership beside other replicas that do the same, by intention.
type everywhere struct{}

func (everywhere) run(ctx context.Context, l *Lease, lead term.Lead) error {
	return always{}.run(term.Without(ctx), l, lead)
}

func (e *elected) run(ctx context.Context, l *Lease, lead term.Lead) error {
	select { // a replica without work under the Lease leaves it to others
	case <-l.used:
		l.warm(ctx, e)
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil
	}
	return e.Run(ctx, lead)
}

type leases struct {
	starter[*Lease]

	manager *Manager

	identity string // the default: that in the first Lease; guarded by mu
}

// add makes a Lease. The first one is the main Lease; without a Coordinator it always leads.
func (ls *leases) add(c Coordinator) (*Lease, error) {
	l := &Lease{group: newGroup(ls.manager.registry), leadership: always{}, leads: leaderWords().leads}
	if c == nil {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		ls.addLocked(l)
		return l, nil
	}
	e, err := elect(c, ls.manager, l.used)
	if err != nil {
		return l, err
	}
	ls.sameIdentity(e.Identity())
	l.leadership, l.leads = e, e.text.leads
	if e.members != nil {
		l.partition = e.members
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.all) > 0 {
		l.leads += " (" + e.String() + ")"
	}
	if slices.ContainsFunc(ls.electedLocked(), func(other *elected) bool { return other.name == e.name }) {
		return l, fmt.Errorf("the process already campaigns for a Lease %q; use unique names, even in different namespaces: logs, checks and metrics use them", e.name)
	}
	ls.addLocked(l)
	return l, nil
}

func (ls *leases) addFree() *Lease {
	l := &Lease{group: newGroup(ls.manager.registry), leadership: everywhere{}, leads: "leading on every replica"}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.addLocked(l)
	return l
}

func (ls *leases) sameIdentity(first string) string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.identity = cmp.Or(ls.identity, first)
	return ls.identity
}

func (ls *leases) disconnect(ctx context.Context) {
	for _, e := range ls.elected() {
		for _, c := range e.host.clients {
			c.Disconnect(ctx)
		}
	}
}

func (ls *leases) elected() []*elected {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.electedLocked()
}

func (ls *leases) electedLocked() (all []*elected) {
	for _, l := range ls.all {
		if e, ok := l.leadership.(*elected); ok {
			all = append(all, e)
		}
	}
	return all
}

// Add is [Manager.Add] for this Lease.
func (l *Lease) Add(c Controller) { l.registry.add(c, l.group) }

// AddLeaderOnly is [Manager.AddLeaderOnly] for this Lease.
func (l *Lease) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	if l.partition != nil {
		l.registry.report.failed(fmt.Errorf("AddLeaderOnly: %q has no leader to run on, because all replicas of a group are active; "+
			"make a Lease of its own with Manager.AddLease and add it there, or use AddEverywhere", name))
		return
	}
	l.addFunc("AddLeaderOnly", name, run)
}

// warmLimit is how long an unsynced controller delays a campaign: a source that never syncs must
// not keep all replicas from leading.
const warmLimit = 2 * time.Minute

func (l *Lease) campaign(ctx context.Context) error {
	return l.leadership.run(ctx, l, func(take, work context.Context) error {
		// The grace time begins with the stop. A member's take ends later, without its slots.
		work, cancel := run.WithGrace(ctx, work, l.registry.o.Grace)
		defer cancel()
		return l.lead(take, work)
	})
}

// warm waits until every controller can lead, at most for warmLimit unless it requires its sync.
func (l *Lease) warm(ctx context.Context, e *elected) {
	limited, cancel := context.WithTimeout(ctx, warmLimit)
	defer cancel()
	allSynced(limited, l.controllers())
	for required := l.unsynced(requiresKinds); len(required) > 0; required = l.unsynced(requiresKinds) {
		if !allSynced(ctx, required) {
			return
		}
	}
	var unsynced []string
	for _, c := range l.unsynced(func(*removable) bool { return true }) {
		unsynced = append(unsynced, c.Name())
	}
	if unsynced == nil || ctx.Err() != nil {
		return
	}
	e.logger().Warn(e.text.unsynced, "after", warmLimit.String(), "controllers", unsynced)
	e.host.reports.Send(&hook.LeaseUnsynced{Lease: e.name})
}

func requiresKinds(c *removable) bool { return c.Report().RequireKinds }

func (l *Lease) unsynced(is func(*removable) bool) []*removable {
	return slices.DeleteFunc(l.controllers(), func(c *removable) bool { return run.Closed(c.Synced()) || !is(c) })
}

func allSynced(ctx context.Context, controllers []*removable) bool {
	for _, c := range controllers {
		select {
		case <-c.Synced():
		case <-c.removed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (l *Lease) lead(take, work context.Context) error {
	r := l.registry.report
	term := newStage(take, r)
	defer term.end()
	l.open(func(f runnable) {
		var busy func() []string
		if f.of != nil {
			busy = func() []string { return f.of.Report().Running }
		}
		term.run(f.name, busy, func(take context.Context) error { return f.run(take, work) })
	})
	<-take.Done()
	l.close()
	term.running.Wait()
	l.flushEvents(term, work)
	return nil
}
