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
func (m *Manager) Add(c Controller) {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		m.complain(errors.New("Add was given no controller"))
		return
	}
	r, running := m.claim(c)
	if r == nil {
		m.complain(fmt.Errorf("two controllers are named %q; give each a name of its own", c.Name()))
		return
	}
	if running { // else Run validates it
		if err := c.Validate(); err != nil {
			m.complain(err)
			return
		}
	}
	name := fmt.Sprintf("controller %q", c.Name())
	m.addEverywhere(runnable{name: "the sources of " + name, run: r.runWarm, of: r})
	m.addLeading(leading{name: name, run: func(take, work context.Context) error { return r.runLead(take, work, m.o.Grace) }, of: r})
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
	if m.usable("AddLeaderOnly", name, run) {
		m.addLeading(leading{name: name, run: func(take, _ context.Context) error { return run(take) }})
	}
}

func (m *Manager) usable(method, name string, run func(ctx context.Context) error) bool {
	switch {
	case name == "":
		m.complain(fmt.Errorf("%s: give the function a name", method))
	case run == nil:
		m.complain(fmt.Errorf("%s: %q is a nil function", method, name))
	default:
		return true
	}
	return false
}

// claim takes a controller in, unless another has its name, and says whether Run has begun.
func (m *Manager) claim(c Controller) (r *removable, running bool) {
	name := c.Name()
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.controllers, func(r *removable) bool { return r.Name() == name }) {
		return nil, m.ran
	}
	r = &removable{Controller: c, removed: make(chan struct{})}
	m.controllers = append(m.controllers, r)
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

func (m *Manager) addLeading(l leading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.of != nil && closed(l.of.removed) {
		return
	}
	m.leaderOnly = append(m.leaderOnly, l)
	if m.startLeading != nil {
		m.startLeading(l)
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

// openTerm starts what runs in a term, and from now on what is added.
func (m *Manager) openTerm(start func(leading)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startLeading = start
	for _, l := range m.leaderOnly {
		start(l)
	}
}
