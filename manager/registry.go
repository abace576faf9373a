// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

type registry struct {
	o      *Options
	report *report
	ready  chan struct{}

	history *controller.History

	mu          sync.Mutex // guards what follows, and fields that name it
	ran         bool       // Run has begun
	had         bool       // a controller was added
	used        bool       // something was added
	stopping    bool       // nothing starts any more
	controllers []*removable
	everywhere  *group
	recorders   *recorders
}

func newRegistry(o *Options, report *report) *registry {
	r := &registry{o: o, report: report, ready: make(chan struct{}), history: controller.NewHistory(controller.DefaultHistory)}
	r.everywhere, r.recorders = newGroup(r), &recorders{starter[term.Recorder]{mu: &r.mu}}
	return r
}

type group struct {
	starter[runnable]

	registry  *registry
	used      chan struct{}  // closed when something is added
	partition term.Partition // divides the keys of its controllers; nil: they have all keys
}

func newGroup(r *registry) *group {
	return &group{starter: starter[runnable]{mu: &r.mu}, registry: r, used: make(chan struct{})}
}

// runnable takes new work until take is done. The context work is for work that has begun.
type runnable struct {
	name string
	run  func(take, work context.Context) error
	of   *removable // its controller, if any
}

type removable struct {
	Controller

	enabled       bool
	under         *group
	removed       chan struct{}
	warm, lead    *phase
	alive, synced *check // alive may be nil
}

func (r *registry) add(c Controller, under *group) {
	if argument.IsNil(c) {
		r.report.failed(errors.New("Add: the controller is nil"))
		return
	}
	added, running := r.claim(c, under)
	if added == nil {
		r.report.failed(fmt.Errorf("two controllers are named %q; give each a name of its own", c.Name()))
		return
	}
	if !added.enabled {
		return
	}
	defaults := r.o.ControllerDefaults
	if defaults.Validate() != nil { // Run reports it, once
		defaults = controller.Options{}
	}
	defaults.Hook, defaults.Partition = r.o.Hook, under.partition
	defaults.History = cmp.Or(defaults.History, r.history)
	c.Default(defaults)
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
	under.add(runnable{name: name, of: added, run: added.lead.run})
}

func (g *group) addFunc(method, name string, f func(ctx context.Context) error) {
	switch {
	case name == "":
		g.registry.report.failed(fmt.Errorf("%s: give the function a name", method))
	case f == nil:
		g.registry.report.failed(fmt.Errorf("%s: %q is a nil function", method, name))
	case !g.registry.tooLate(fmt.Sprintf("%q", name)):
		g.add(runnable{name: name, run: func(take, _ context.Context) error { return f(take) }})
	}
}

func (g *group) add(f runnable) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.of != nil && run.Closed(f.of.removed) {
		return
	}
	if !run.Closed(g.used) {
		close(g.used)
	}
	g.registry.used = true
	g.addLocked(f)
}

func (g *group) controllers() []*removable {
	return slices.DeleteFunc(g.registry.current(), func(c *removable) bool { return c.under != g })
}

func (r *registry) claim(c Controller, under *group) (added *removable, running bool) {
	name := c.Name()
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.controllers, func(other *removable) bool { return other.Name() == name }) {
		return nil, r.ran
	}
	added = &removable{
		Controller: c, enabled: enabled(r.o.Controllers, name), under: under, removed: make(chan struct{}),
		warm: newPhase(func(ctx, _ context.Context) error { return c.Warm(ctx) }),
		lead: newPhase(func(take, work context.Context) error {
			work, cancel := run.WithGrace(take, work, r.o.Grace)
			defer cancel()
			return c.Lead(take, work)
		}),
	}
	if r.o.StalledAfter >= 0 {
		added.alive = newCheck("controller-"+name, func(context.Context) error { return progress(c.Report(), r.o.StalledAfter) })
	}
	added.synced = newCheck("controller-"+name, func(context.Context) error { return unready(c, r.ready) })
	r.had, r.used = true, true
	r.controllers = append(r.controllers, added)
	return added, r.ran
}

func (r *registry) tooLate(what string) bool {
	late := r.stops()
	if late {
		r.report.logger().Warn("not started: the manager is stopping or has stopped", "added", what)
	}
	return late
}

func (r *registry) stops() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping
}

// begin marks the start of Run. Add validates controllers that come later.
func (r *registry) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran = true
}

func (r *registry) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping, r.everywhere.start = true, nil
}

// hadAny reports whether a controller was ever added, and whether anything was.
func (r *registry) hadAny() (controllers, anything bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.had, r.used
}

func (r *registry) current() []*removable {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.controllers), func(c *removable) bool { return !c.enabled })
}

func (r *registry) names() (known, disabled []string) {
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

func (r *registry) remove(ctx context.Context, c Controller) error {
	if argument.IsNil(c) {
		return errors.New("Remove: the controller is nil")
	}
	removed := r.forget(c)
	if removed == nil {
		return fmt.Errorf("no controller %q was added", c.Name())
	}
	err := removed.lead.stop(ctx)
	if ctx.Err() == nil { // else a Reconcile may still write
		err = errors.Join(err, c.AwaitWrites(ctx))
	}
	if err = errors.Join(err, removed.warm.stop(ctx)); err != nil {
		return fmt.Errorf("controller %q: %w", c.Name(), err)
	}
	return nil
}

func (r *registry) forget(c Controller) *removable {
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
	for _, g := range []*group{r.everywhere, removed.under} {
		g.all = slices.DeleteFunc(g.all, func(f runnable) bool { return f.of == removed })
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
