// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Add adds a controller, before Run or while it runs: then the controller starts at once. One that is wrong ends Run, like one
// that fails.
func (m *Manager) Add(c Controller) { m.main.Add(c) }

// add adds a controller that leads under l.
func (m *Manager) add(l *Lease, c Controller) {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		m.complain(errors.New("Add was given no controller"))
		return
	}
	r, running := m.claim(l, c)
	if r == nil {
		m.complain(fmt.Errorf("two controllers are named %q; give each a name of its own", c.Name()))
		return
	}
	if heir, ok := c.(writesInherited); ok && len(r.inherited) > 0 {
		heir.Inherit(r.inherited)
	}
	if !m.o.enables(c.Name()) || running && !m.fits(r) { // else Run validates it
		return
	}
	name := fmt.Sprintf("controller %q", c.Name())
	if m.tooLate(name) {
		return
	}
	m.addEverywhere(runnable{name: "the sources of " + name, run: r.runWarm, of: r})
	l.add(leading{name: name, run: func(take, work context.Context) error { return r.runLead(take, work, m.o.Grace) }, of: r})
}

// fits says whether a controller that was added after Run had begun is to be started, and reports why not.
func (m *Manager) fits(r *removable) bool {
	err := r.Validate()
	m.complain(err)
	return err == nil
}

// AddEverywhere adds a function that runs on every replica, leader or not, until its context is done. It may return earlier;
// an error ends the manager's Run. It may be added before Run or while it runs: then the function starts at once.
func (m *Manager) AddEverywhere(name string, run func(ctx context.Context) error) {
	if m.usable("AddEverywhere", name, run) {
		m.addEverywhere(runnable{name: name, run: run})
	}
}

// AddLeaderOnly adds a function that runs in each term of this replica's leadership, or once if there is no leader election,
// until its context is done; context.Cause says why. It may return earlier; an error ends the manager's Run. It may be added
// before Run or while it runs: then the function starts at once where this replica leads.
func (m *Manager) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	m.main.AddLeaderOnly(name, run)
}

func (m *Manager) usable(method, name string, run func(ctx context.Context) error) bool {
	switch {
	case name == "":
		m.complain(fmt.Errorf("%s: give the function a name", method))
	case run == nil:
		m.complain(fmt.Errorf("%s: %q is a nil function", method, name))
	default:
		return !m.tooLate(fmt.Sprintf("%q", name))
	}
	return false
}

// tooLate says whether Run has ended, or is about to. What is added then is not started, and the log says so.
func (m *Manager) tooLate(what string) bool {
	m.mu.Lock()
	late := m.stopping
	m.mu.Unlock()
	if late {
		m.logger().Warn("the manager stops or has stopped: what is added now is not started", "added", what)
	}
	return late
}

// claim takes a controller in, unless another has its name, and says whether Run has begun.
func (m *Manager) claim(l *Lease, c Controller) (r *removable, running bool) {
	name := c.Name()
	m.mu.Lock()
	defer m.mu.Unlock()
	same := func(r *removable) bool { return r.Name() == name }
	if slices.ContainsFunc(m.controllers, same) || slices.ContainsFunc(m.disabled, same) {
		return nil, m.ran
	}
	r = &removable{Controller: c, lease: l, removed: make(chan struct{}), inherited: m.unshown[name]}
	delete(m.unshown, name)
	if m.o.enables(name) {
		m.controllers = append(m.controllers, r)
	} else {
		m.disabled = append(m.disabled, r)
	}
	return r, m.ran
}

func (m *Manager) addEverywhere(r runnable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.of != nil && closed(r.of.removed) {
		return
	}
	m.everywhere = append(m.everywhere, r)
	if m.startEverywhere != nil {
		m.startEverywhere(r)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// openEverywhere starts what runs on every replica, and from now on what is added.
func (m *Manager) openEverywhere(start func(runnable)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startEverywhere = start
	for _, f := range m.everywhere {
		start(f)
	}
}

// openLeases has each Lease campaigned for, and from now on what is added.
func (m *Manager) openLeases(start func(*Lease)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startCampaign = start
	for _, l := range m.leases {
		start(l)
	}
}
