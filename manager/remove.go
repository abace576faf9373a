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
	"time"

	"github.com/setpoint-dev/setpoint/ledger"
)

// Remove stops one controller that was added, at any time: it takes no new key, its running Reconciles have the grace time to
// finish, then its sources stop, and its name is free again. It returns nil when all of it has returned, the controller's error if
// it ends with one, or an error that says what still runs when ctx ends before; it goes on stopping then. It must not be called in
// a Reconcile of the controller itself, which it waits for.
func (m *Manager) Remove(ctx context.Context, c Controller) error {
	if isNil(c) {
		return errors.New("Remove was given no controller")
	}
	r := m.forget(c)
	if r == nil {
		return fmt.Errorf("no controller %q was added", c.Name())
	}
	err := errors.Join(r.lead.end(ctx), r.warm.end(ctx))
	m.keepWrites(c)
	if err != nil {
		return fmt.Errorf("controller %q: %w", c.Name(), err)
	}
	return nil
}

// removable is a controller that was added.
type removable struct {
	Controller
	lease      *Lease         // under which it leads
	inherited  []ledger.Write // see keepWrites
	removed    chan struct{}  // closed by Remove
	warm, lead phase

	alive, synced probe // the manager's checks of it
}

// runWarm is Warm until the controller is removed.
func (r *removable) runWarm(ctx context.Context) error { return r.warm.run(ctx, r.Warm) }

// runLead is Lead until the controller is removed.
func (r *removable) runLead(take, work context.Context, grace time.Duration) error {
	return r.lead.run(take, func(take context.Context) error {
		work, cancel := withGrace(take, work, grace)
		defer cancel()
		return r.Lead(take, work)
	})
}

// withGrace returns a context that ends with work, and, at the latest, when the grace time since the end of take is over.
func withGrace(take, work context.Context, grace time.Duration) (context.Context, func()) {
	work, cancel := context.WithCancelCause(work)
	over := fmt.Errorf("the grace time of %s is over: %w", grace, context.Canceled)
	stop := context.AfterFunc(take, func() { time.AfterFunc(grace, func() { cancel(over) }) })
	return work, func() {
		stop()
		cancel(nil)
	}
}

// is says whether it is c, and not another one of its name.
func (r *removable) is(c Controller) bool {
	return r.Name() == c.Name() && (!reflect.ValueOf(c).Comparable() || r.Controller == c)
}

// forget takes a controller out of everything that would start it.
func (m *Manager) forget(c Controller) *removable {
	m.mu.Lock()
	defer m.mu.Unlock()
	same := func(r *removable) bool { return r.is(c) }
	if i := slices.IndexFunc(m.disabled, same); i >= 0 {
		r := m.disabled[i]
		m.disabled = slices.Delete(m.disabled, i, i+1)
		return r
	}
	i := slices.IndexFunc(m.controllers, same)
	if i < 0 {
		return nil
	}
	r := m.controllers[i]
	close(r.removed)
	m.controllers = slices.Delete(slices.Clone(m.controllers), i, i+1) // becomeReady may be going through the old one
	m.everywhere = slices.DeleteFunc(m.everywhere, func(f runnable) bool { return f.of == r })
	r.lease.leaderOnly = slices.DeleteFunc(r.lease.leaderOnly, func(l leading) bool { return l.of == r })
	return r
}

// phase is one of a controller's functions. It runs once at a time, and can be ended for good.
type phase struct {
	mu       sync.Mutex // guards what follows
	over     bool
	stop     context.CancelFunc // ends the call under way
	returned chan struct{}      // closed when that has returned, with err
	err      error              // if it was ended
}

// run calls f, with a context that ends when the phase does, unless it has been ended.
func (p *phase) run(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	returned := make(chan struct{})
	if !p.begin(stop, returned) {
		return nil
	}
	defer close(returned)
	return p.result(f(ctx))
}

func (p *phase) begin(stop context.CancelFunc, returned chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop, p.returned = stop, returned
	return !p.over
}

// result keeps the error for end, if it is that which wants to know.
func (p *phase) result(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		return err
	}
	if !errors.Is(err, context.Canceled) { // it was asked to stop, and says so
		p.err = err
	}
	return nil
}

// end has the call under way return, and waits for that until ctx ends. There will be no other.
func (p *phase) end(ctx context.Context) error {
	p.mu.Lock()
	p.over = true
	stop, returned := p.stop, p.returned
	p.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	select {
	case <-returned:
	case <-ctx.Done():
		return fmt.Errorf("it has not stopped yet: %w", context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// writesInherited is a controller that reads its own writes (C6), and those of the one before it of
// the same name. A *controller.Controller is one.
type writesInherited interface {
	// Unshown returns the writes that the caches do not show yet.
	Unshown() []ledger.Write
	// Inherit makes the first Reconcile wait until they do.
	Inherit(writes []ledger.Write)
}

// keepWrites keeps what a controller that was removed wrote, for the next one of its name.
func (m *Manager) keepWrites(c Controller) {
	former, ok := c.(writesInherited)
	if !ok {
		return
	}
	writes := former.Unshown()
	if len(writes) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unshown == nil {
		m.unshown = map[string][]ledger.Write{}
	}
	m.unshown[c.Name()] = append(m.unshown[c.Name()], writes...)
}
