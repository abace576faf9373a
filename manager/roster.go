// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/server"
)

// roster is what was added to a manager.
type roster struct {
	o      *Options
	report *report
	ready  chan struct{} // see Manager.Ready

	mu          sync.Mutex // guards what follows, the leaders, and what else names it
	ran         bool       // Run has begun
	stopping    bool       // what is added is not started any more
	controllers []*removable
	disabled    []*removable              // that Options.Controllers leaves out
	unshown     map[string][]ledger.Write // of controllers that were removed, by name
	everywhere  []runnable
	start       func(runnable) // once Run has begun
}

// runnable is a function with a name. It runs until its context is done.
type runnable struct {
	name string
	run  func(ctx context.Context) error
	of   *removable // if it is a controller's
}

// leaders is what leads under one Lease. The roster's lock guards it.
type leaders struct {
	roster *roster
	used   chan struct{} // closed when something is added
	all    []leading
	start  func(leading) // once this replica leads; between terms, and after Run, it does nothing
}

// leading runs in each term.
type leading struct {
	name string
	run  func(take, work context.Context) error
	of   *removable // if it is a controller's
}

// removable is a controller that was added.
type removable struct {
	Controller
	under         *leaders
	inherited     []ledger.Write // from the one of this name that was removed
	removed       chan struct{}  // closed by Remove
	warm, lead    phase
	alive, synced *server.Check // alive is nil if it is not asked for
}

// add adds a controller that leads among the others.
func (r *roster) add(c Controller, under *leaders) {
	if argument.IsNil(c) {
		r.report.failed(errors.New("Add was given no controller"))
		return
	}
	added, running := r.claim(c, under)
	if added == nil {
		r.report.failed(fmt.Errorf("two controllers are named %q; give each a name of its own", c.Name()))
		return
	}
	if len(added.inherited) > 0 {
		c.Inherit(added.inherited)
	}
	if !enabled(r.o.Controllers, c.Name()) {
		return
	}
	if running { // else Run validates it
		if err := c.Validate(); err != nil {
			r.report.failed(err)
			return
		}
	}
	name := fmt.Sprintf("controller %q", c.Name())
	if r.tooLate(name) {
		return
	}
	r.addEverywhere(runnable{name: "the sources of " + name, of: added, run: func(ctx context.Context) error {
		return added.warm.run(ctx, c.Warm)
	}})
	under.add(leading{name: name, of: added, run: func(take, work context.Context) error {
		return added.lead.run(take, func(take context.Context) error {
			work, cancel := run.WithGrace(take, work, r.o.Grace)
			defer cancel()
			return c.Lead(take, work)
		})
	}})
}

// claim adds a controller, unless another one has its name. It reports whether Run has begun.
func (r *roster) claim(c Controller, under *leaders) (added *removable, running bool) {
	name := c.Name()
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(other *removable) bool { return other.Name() == name }
	if slices.ContainsFunc(r.controllers, same) || slices.ContainsFunc(r.disabled, same) {
		return nil, r.ran
	}
	added = &removable{Controller: c, under: under, removed: make(chan struct{}), inherited: r.unshown[name]}
	added.alive, added.synced = checksOf(c, r.o.Health, r.ready)
	delete(r.unshown, name)
	if enabled(r.o.Controllers, name) {
		r.controllers = append(r.controllers, added)
	} else {
		r.disabled = append(r.disabled, added)
	}
	return added, r.ran
}

// usable reports whether a function may be added now, and otherwise why not.
func (r *roster) usable(method, name string, run func(ctx context.Context) error) bool {
	switch {
	case name == "":
		r.report.failed(fmt.Errorf("%s: give the function a name", method))
	case run == nil:
		r.report.failed(fmt.Errorf("%s: %q is a nil function", method, name))
	default:
		return !r.tooLate(fmt.Sprintf("%q", name))
	}
	return false
}

// tooLate reports, also to the log, whether Run has ended or is about to.
func (r *roster) tooLate(what string) bool {
	r.mu.Lock()
	late := r.stopping
	r.mu.Unlock()
	if late {
		r.report.logger().Warn("the manager stops or has stopped: what is added now is not started", "added", what)
	}
	return late
}

func (r *roster) addEverywhere(f runnable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.of != nil && run.Closed(f.of.removed) {
		return
	}
	r.everywhere = append(r.everywhere, f)
	if r.start != nil {
		r.start(f)
	}
}

// begin marks the start of Run, and returns the controllers that Run validates. Add validates those
// that follow.
func (r *roster) begin() []*removable {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran = true
	return slices.Clone(r.controllers)
}

// open starts what runs on every replica, and from now on what is added.
func (r *roster) open(start func(runnable)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start = start
	for _, f := range r.everywhere {
		start(f)
	}
}

// close keeps what is added from now on from starting.
func (r *roster) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// current returns the controllers that run, and whether the manager stops.
func (r *roster) current() (controllers []*removable, stopping bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.controllers), r.stopping
}

// names returns the sorted names of all controllers, and of those that do not run.
func (r *roster) names() (known, disabled []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.disabled {
		disabled = append(disabled, c.Name())
	}
	known = slices.Clone(disabled)
	for _, c := range r.controllers {
		known = append(known, c.Name())
	}
	slices.Sort(known)
	return known, disabled
}

// remove implements Manager.Remove.
func (r *roster) remove(ctx context.Context, c Controller) error {
	if argument.IsNil(c) {
		return errors.New("Remove was given no controller")
	}
	removed := r.forget(c)
	if removed == nil {
		return fmt.Errorf("no controller %q was added", c.Name())
	}
	err := errors.Join(removed.lead.end(ctx), removed.warm.end(ctx))
	if writes := c.Unshown(); len(writes) > 0 {
		r.mu.Lock()
		r.unshown[c.Name()] = append(r.unshown[c.Name()], writes...)
		r.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("controller %q: %w", c.Name(), err)
	}
	return nil
}

// forget takes a controller out of everything that would start it.
func (r *roster) forget(c Controller) *removable {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(r *removable) bool { // and not another one of its name
		return r.Name() == c.Name() && (!reflect.ValueOf(c).Comparable() || r.Controller == c)
	}
	if i := slices.IndexFunc(r.disabled, same); i >= 0 {
		removed := r.disabled[i]
		r.disabled = slices.Delete(r.disabled, i, i+1)
		return removed
	}
	i := slices.IndexFunc(r.controllers, same)
	if i < 0 {
		return nil
	}
	removed := r.controllers[i]
	close(removed.removed)
	r.controllers = slices.Delete(r.controllers, i, i+1)
	r.everywhere = slices.DeleteFunc(r.everywhere, func(f runnable) bool { return f.of == removed })
	removed.under.all = slices.DeleteFunc(removed.under.all, func(l leading) bool { return l.of == removed })
	return removed
}

func (l *leaders) add(f leading) {
	l.roster.mu.Lock()
	defer l.roster.mu.Unlock()
	if f.of != nil && run.Closed(f.of.removed) {
		return
	}
	l.all = append(l.all, f)
	if !run.Closed(l.used) {
		close(l.used)
	}
	if l.start != nil {
		l.start(f)
	}
}

// addFunc adds a function that the user gave.
func (l *leaders) addFunc(name string, f func(ctx context.Context) error) {
	if l.roster.usable("AddLeaderOnly", name, f) {
		l.add(leading{name: name, run: func(take, _ context.Context) error { return f(take) }})
	}
}

// open starts what runs in a term, and from now on what is added.
func (l *leaders) open(start func(leading)) {
	l.roster.mu.Lock()
	defer l.roster.mu.Unlock()
	l.start = start
	for _, f := range l.all {
		start(f)
	}
}

// controllers returns those that lead.
func (l *leaders) controllers() []*removable {
	all, _ := l.roster.current()
	return slices.DeleteFunc(all, func(c *removable) bool { return c.under != l })
}
