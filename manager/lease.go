// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// Lease is one Lease of a process, and what runs while this process holds it. Manager.Lease makes one. What Manager.Add and
// Manager.AddLeaderOnly are given runs under that of Options.LeaderElection.
//
// The terms of several Leases begin and end independently: one that is lost stops what runs under it, and nothing else.
type Lease struct {
	manager   *Manager
	elector   *leaderelection.Elector // nil: there is none, and what is added leads at once
	hooks     *hook.LeaderElection
	alive     probe // the manager's checks of it
	usability probe
	name      string // without the namespace, for the hooks

	used chan struct{} // closed when something is added
	inspection

	// guarded by the manager's mutex:
	leaderOnly []leading
	start      func(leading) // once this replica leads; between terms, and after Run, it does nothing
}

// leading is what runs in each term.
type leading struct {
	name string
	run  func(take, work context.Context) error
	of   *removable // if it is a controller's
}

// Lease has the process campaign for one more Lease, and returns it, for controllers and functions that are to run where it is
// held: they may lead on another replica than the rest does. It begins to campaign when something that runs was added and is warm: who
// has nothing to do under a Lease leaves it to others. The Identity defaults to that of the process's first Lease. It may be called
// before Run or while it runs, from anywhere. What is wrong with the options, or that there is a Lease of that name already, in
// whichever namespace, is reported by Run.
func (m *Manager) Lease(o leaderelection.Options) *Lease {
	l, err := m.newLease(&o)
	switch {
	case err != nil:
		m.complain(fmt.Errorf("the Lease %q: %w", o.Lease, err))
	case !m.takeIn(l):
		m.complain(fmt.Errorf("the process campaigns for a Lease %q already; give each a name of its own, also in another namespace: logs, checks and metrics go by it", o.Lease))
	}
	return l
}

// newLease makes one; without options, one for what leads at once.
func (m *Manager) newLease(o *leaderelection.Options) (l *Lease, err error) {
	l = &Lease{manager: m, used: make(chan struct{})}
	if o == nil {
		return l, nil
	}
	with := *o
	if with.Identity == "" {
		with.Identity = m.sameIdentity("")
	}
	with.Hooks = l.log().With(with.Hooks)
	l.hooks, l.name = with.Hooks, with.Lease
	if l.elector, err = leaderelection.New(m.config, with); err == nil {
		m.sameIdentity(l.elector.Identity())
	}
	return l, err
}

// sameIdentity returns the identity of the process, which is the first that one of its Leases has.
func (m *Manager) sameIdentity(first string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.identity == "" {
		m.identity = first
	}
	return m.identity
}

// takeIn adds a Lease, unless there is one of that name, and has it campaigned for once Run has begun.
func (m *Manager) takeIn(l *Lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.leases, func(other *Lease) bool { return other.elector != nil && other.name == l.name }) {
		return false
	}
	m.leases = append(m.leases, l)
	if m.startCampaign != nil {
		m.startCampaign(l)
	}
	return true
}

// String names the Lease, with its namespace.
func (l *Lease) String() string {
	if l.elector == nil {
		return ""
	}
	return l.elector.String()
}

// leads is what the process does under the Lease, in reports.
func (l *Lease) leads() string {
	if l == l.manager.main {
		return "leading"
	}
	return "leading (" + l.String() + ")"
}

// Add is Manager.Add, for a controller that leads while this Lease is held.
func (l *Lease) Add(c Controller) { l.manager.add(l, c) }

// AddLeaderOnly is Manager.AddLeaderOnly, for a function that runs while this Lease is held.
func (l *Lease) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	if l.manager.usable("AddLeaderOnly", name, run) {
		l.add(leading{name: name, run: func(take, _ context.Context) error { return run(take) }})
	}
}

func (l *Lease) add(f leading) {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.of != nil && closed(f.of.removed) {
		return
	}
	l.leaderOnly = append(l.leaderOnly, f)
	if !closed(l.used) {
		close(l.used)
	}
	if l.start != nil {
		l.start(f)
	}
}

// openTerm starts what runs in a term, and from now on what is added.
func (l *Lease) openTerm(start func(leading)) {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	l.start = start
	for _, f := range l.leaderOnly {
		start(f)
	}
}

// controllers returns those that lead under it.
func (l *Lease) controllers() []*removable {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	var mine []*removable
	for _, c := range m.controllers {
		if c.lease == l {
			mine = append(mine, c)
		}
	}
	return mine
}

// warmLimit is how long a replica that does not get synced keeps from campaigning (L8): a source that will never sync must
// not keep everybody from leading.
const warmLimit = 2 * time.Minute

// campaign leads when it may: at once, or, once this replica is warm, in the terms that it wins.
func (l *Lease) campaign(ctx context.Context, r *report) error {
	lead := func(take, work context.Context) error { return l.lead(take, work, r) }
	if l.elector == nil {
		return lead(ctx, context.WithoutCancel(ctx))
	}
	select { // who has nothing to do under it would keep it from who has
	case <-l.used:
		l.warm(ctx)
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil
	}
	return l.elector.Run(ctx, lead)
}

// warm returns when every controller that leads under the Lease could lead, or the limit is over.
func (l *Lease) warm(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, warmLimit)
	defer cancel()
	controllers := l.controllers()
	if allSynced(limited, controllers) || ctx.Err() != nil {
		return
	}
	var cold []string
	for _, c := range controllers {
		if !closed(c.Synced()) && !closed(c.removed) {
			cold = append(cold, c.Name())
		}
	}
	l.cold(cold)
}

// cold reports that this replica campaigns although it is not warm.
func (l *Lease) cold(controllers []string) {
	l.manager.logger().Warn("campaigning although not every controller is synced", "lease", l.String(), "after", warmLimit.String(), "controllers", controllers)
	if l.hooks.Cold != nil {
		l.hooks.Cold(l.name)
	}
}

// allSynced returns true when each controller could lead or was removed, false when ctx ends before.
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

// lead runs for one term what only a leader may. It returns when all of it has. Errors are reported at once, so that what
// runs outside of the term stops, too.
func (l *Lease) lead(take, work context.Context, r *report) error {
	work, cancel := withGrace(take, work, l.manager.o.Grace)
	defer cancel()
	term := newStage(take, r)
	defer term.end()
	l.openTerm(func(f leading) {
		if f.of != nil {
			if c, ok := f.of.Controller.(interface{ Running() []string }); ok {
				r.explain(f.name, c.Running)
			}
		}
		term.run(f.name, func(take context.Context) error { return f.run(take, work) })
	})
	<-take.Done()
	term.join()
	return nil
}
