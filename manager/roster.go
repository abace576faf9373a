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
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/server"
)

// roster has the controllers and functions that were added to a manager.
type roster struct {
	o      *Options
	report *report
	ready  chan struct{} // see Manager.Ready

	mu          sync.Mutex // guards the fields below, the places, and fields that name it
	ran         bool       // Run has begun
	stopping    bool       // nothing starts any more
	controllers []*removable
	unshown     map[string][]ledger.Write // of removed controllers, by name
	everywhere  *place
}

func newRoster(o *Options, report *report) *roster {
	r := &roster{o: o, report: report, ready: make(chan struct{}), unshown: map[string][]ledger.Write{}}
	r.everywhere = newPlace(r)
	return r
}

// place has the functions that run on every replica, or under one Lease. The roster's lock guards
// it.
type place struct {
	roster *roster
	used   chan struct{} // closed when something is added
	all    []runnable
	start  func(runnable) // nil: nothing runs here now
}

func newPlace(r *roster) *place { return &place{roster: r, used: make(chan struct{})} }

// runnable is a named function. It takes new work until take is done. The context work is for work
// that has begun.
type runnable struct {
	name string
	run  func(take, work context.Context) error
	of   *removable // its controller, if any
}

// removable is a controller with its state in the manager.
type removable struct {
	Controller

	enabled       bool // by Options.Controllers
	under         *place
	inherited     []ledger.Write // of a removed controller of the same name
	removed       chan struct{}  // closed by Remove
	warm, lead    *phase
	alive, synced *server.Check // alive may be nil
}

// Add adds a controller, which leads while the process holds this Lease. Manager.Add uses the Lease
// of Options.LeaderElection; without leader election, the controller leads on every replica.
//
// Added during Run, the controller starts at once. After Run, the call only logs a warning. Run
// returns an error if the controller is invalid or fails, or if its name is taken.
func (p *place) Add(c Controller) {
	r := p.roster
	if argument.IsNil(c) {
		r.report.failed(errors.New("Add: the controller is nil"))
		return
	}
	added, running := r.claim(c, p)
	if added == nil {
		r.report.failed(fmt.Errorf("two controllers are named %q; give each a name of its own", c.Name()))
		return
	}
	if len(added.inherited) > 0 {
		c.Inherit(added.inherited)
	}
	if !added.enabled {
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
	r.everywhere.add(runnable{name: "the sources of " + name, of: added, run: added.warm.run})
	p.add(runnable{name: name, of: added, run: added.lead.run})
}

// AddLeaderOnly adds a function that runs in each term of this Lease, or once without leader
// election, until its context is done. context.Cause returns the reason. Manager.AddLeaderOnly uses
// the Lease of Options.LeaderElection.
//
// The function may return earlier. An error or panic ends the manager's Run. Added during Run, it
// starts at once if this replica leads. The name appears in errors, logs and profiles, and must not
// be empty.
func (p *place) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	p.addFunc("AddLeaderOnly", name, run)
}

// addFunc adds a function, unless the manager stops.
func (p *place) addFunc(method, name string, f func(ctx context.Context) error) {
	switch {
	case name == "":
		p.roster.report.failed(fmt.Errorf("%s: give the function a name", method))
	case f == nil:
		p.roster.report.failed(fmt.Errorf("%s: %q is a nil function", method, name))
	case !p.roster.tooLate(fmt.Sprintf("%q", name)):
		p.add(runnable{name: name, run: func(take, _ context.Context) error { return f(take) }})
	}
}

func (p *place) add(f runnable) {
	p.roster.mu.Lock()
	defer p.roster.mu.Unlock()
	if f.of != nil && run.Closed(f.of.removed) {
		return
	}
	p.all = append(p.all, f)
	if !run.Closed(p.used) {
		close(p.used)
	}
	if p.start != nil {
		p.start(f)
	}
}

// open starts each function, now and when one is added.
func (p *place) open(start func(runnable)) {
	p.roster.mu.Lock()
	defer p.roster.mu.Unlock()
	p.start = start
	for _, f := range p.all {
		start(f)
	}
}

// close prevents further functions from starting.
func (p *place) close() {
	p.roster.mu.Lock()
	defer p.roster.mu.Unlock()
	p.start = nil
}

// controllers returns the enabled controllers of this place.
func (p *place) controllers() []*removable {
	return slices.DeleteFunc(p.roster.current(), func(c *removable) bool { return c.under != p })
}

// claim adds a controller, unless its name is taken. It reports whether Run has begun.
func (r *roster) claim(c Controller, under *place) (added *removable, running bool) {
	name := c.Name()
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.controllers, func(other *removable) bool { return other.Name() == name }) {
		return nil, r.ran
	}
	added = &removable{
		Controller: c, enabled: enabled(r.o.Controllers, name), under: under, inherited: r.unshown[name], removed: make(chan struct{}),
		warm: newPhase(func(ctx, _ context.Context) error { return c.Warm(ctx) }),
		lead: newPhase(func(take, work context.Context) error {
			work, cancel := run.WithGrace(take, work, r.o.Grace)
			defer cancel()
			return c.Lead(take, work)
		}),
	}
	added.alive, added.synced = checksOf(c, r.o.Health, r.ready)
	delete(r.unshown, name)
	r.controllers = append(r.controllers, added)
	return added, r.ran
}

// tooLate reports whether the manager stops or has stopped, and logs that.
func (r *roster) tooLate(what string) bool {
	late := r.stops()
	if late {
		r.report.logger().Warn("not started: the manager is stopping or has stopped", "added", what)
	}
	return late
}

func (r *roster) stops() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping
}

// begin marks the start of Run. Run validates the controllers added before, Add the later ones.
func (r *roster) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran = true
}

// stop prevents anything further from starting.
func (r *roster) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping, r.everywhere.start = true, nil
}

// current returns the enabled controllers.
func (r *roster) current() []*removable {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.controllers), func(c *removable) bool { return !c.enabled })
}

// names returns the sorted names of all controllers, and the names of the disabled ones.
func (r *roster) names() (known, disabled []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.controllers {
		known = append(known, c.Name())
		if !c.enabled {
			disabled = append(disabled, c.Name())
		}
	}
	slices.Sort(known)
	return known, disabled
}

// remove implements Manager.Remove.
func (r *roster) remove(ctx context.Context, c Controller) error {
	if argument.IsNil(c) {
		return errors.New("Remove: the controller is nil")
	}
	removed := r.forget(c)
	if removed == nil {
		return fmt.Errorf("no controller %q was added", c.Name())
	}
	err := errors.Join(removed.lead.stop(ctx), removed.warm.stop(ctx))
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

// forget removes a controller from every list that could start it. It returns nil if there is none.
func (r *roster) forget(c Controller) *removable {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Another controller may have the name.
	i := slices.IndexFunc(r.controllers, func(other *removable) bool {
		return other.Name() == c.Name() && (!reflect.ValueOf(c).Comparable() || other.Controller == c)
	})
	if i < 0 {
		return nil
	}
	removed := r.controllers[i]
	close(removed.removed)
	r.controllers = slices.Delete(r.controllers, i, i+1)
	for _, p := range []*place{r.everywhere, removed.under} {
		p.all = slices.DeleteFunc(p.all, func(f runnable) bool { return f.of == removed })
	}
	return removed
}

// phase is one of a controller's functions. It can be ended for good.
type phase struct {
	run  func(take, work context.Context) error // one call at a time; a no-op after end
	end  context.CancelFunc                     // ends the current call, and all later ones
	idle chan struct{}                          // has an element while no call runs
	err  error                                  // of the call that was ended; guarded by idle
}

func newPhase(f func(take, work context.Context) error) *phase {
	var over atomic.Bool
	var current atomic.Pointer[context.CancelFunc] // of the current call, or the last one
	p := &phase{idle: make(chan struct{}, 1)}
	p.end = func() {
		over.Store(true)
		if stop := current.Load(); stop != nil {
			(*stop)()
		}
	}
	p.idle <- struct{}{}
	p.run = func(take, work context.Context) error {
		<-p.idle
		defer func() { p.idle <- struct{}{} }()
		take, stop := context.WithCancel(take)
		defer stop()
		current.Store(&stop) // before reading over: either end sees stop, or this sees over
		if over.Load() {
			return nil
		}
		err := f(take, work)
		if !over.Load() {
			return err
		}
		if !errors.Is(err, context.Canceled) { // else the error only reports the end
			p.err = err
		}
		return nil
	}
	return p
}

// stop ends the phase for good. It waits until the current call has returned, or ctx is done.
func (p *phase) stop(ctx context.Context) error {
	p.end()
	select {
	case <-p.idle:
		defer func() { p.idle <- struct{}{} }()
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("it has not stopped yet: %w", context.Cause(ctx))
	}
}
