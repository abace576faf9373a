// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/hook"
)

// Check is one check of a probe. Values are comparable, and the same at each call of Livez or
// Readyz.
type Check interface {
	// Name is the name in the answer.
	Name() string
	// Check returns an error if the check fails. With a [Remark], it passes.
	Check(ctx context.Context) error
}

// Remark is an error of a check that passes. It has a sentence for people.
type Remark string

// Error returns the sentence.
func (r Remark) Error() string { return string(r) }

type check struct {
	name string
	ask  func(ctx context.Context) error
}

func newCheck(name string, ask func(ctx context.Context) error) *check { return &check{name, ask} }

// Name implements Check.
func (c *check) Name() string { return c.name }

// Check implements Check.
func (c *check) Check(ctx context.Context) error { return c.ask(ctx) }

type probes struct {
	registry                  *registry // its lock guards live and ready
	leases                    *leases
	ping, informers, shutdown *check
	live, ready               []Check // of AddLivezCheck and AddReadyzCheck
}

func newProbes(r *registry, l *leases, states func() []hook.InformerState) *probes {
	return &probes{
		registry: r, leases: l, informers: informersCheck(states),
		ping: newCheck("ping", func(context.Context) error { return nil }),
		shutdown: newCheck("shutdown", func(context.Context) error {
			if r.stops() {
				return errors.New("the manager is stopping")
			}
			return nil
		}),
	}
}

// Livez returns the checks whose failure means that the process should be restarted:
//
//	ping                  never fails
//	leader-election-NAME  for each Lease: fails when work continues after its term was lost, or no
//	                      request for the Lease returns although its time is over
//	controller-NAME       for each controller: fails after Options.StalledAfter
//
// and the checks of AddLivezCheck. server.AddHealth serves them at /livez. They come and go with
// controllers and Leases.
func (m *Manager) Livez() []Check {
	p := m.probes
	checks := []Check{p.ping}
	for _, e := range p.leases.elected() {
		checks = append(checks, e.alive)
	}
	for _, c := range p.registry.current() {
		if c.alive != nil {
			checks = append(checks, c.alive)
		}
	}
	return append(checks, p.added(&p.live)...)
}

// Readyz returns the checks whose failure means that the process should get no requests:
//
//	controller-NAME       for each controller: fails until it can lead or, without RequireKinds, the
//	                      manager is Ready; a standby is ready
//	leader-election-NAME  for each Lease: fails until the Lease was acquired, or another replica was
//	                      seen to hold it; later, while a request for it has not returned in its
//	                      time; ?verbose describes other trouble
//	shards-NAME           with a group: fails until the replica has joined the group, or waits
//	                      for other processes; ?verbose lists unserved slots with their age and
//	                      reason, also of others, and what the group waits for
//	informers             never fails; ?verbose lists informers in trouble
//	shutdown              fails from the start of a stop, while the servers still answer
//
// and the checks of AddReadyzCheck. server.AddHealth serves them at /readyz.
func (m *Manager) Readyz() (checks []Check) {
	p := m.probes
	for _, e := range p.leases.elected() {
		checks = append(checks, e.usable)
		if e.joined != nil {
			checks = append(checks, e.joined)
		}
	}
	for _, c := range p.registry.current() {
		checks = append(checks, c.synced)
	}
	checks = append(checks, p.informers)
	return append(append(checks, p.added(&p.ready)...), p.shutdown)
}

// AddLivezCheck adds a check to Livez, before or during Run. If a check fails, the kubelet restarts
// the process: let it fail only where a restart helps. The name consists of letters, digits, '-',
// '_' and '.', and must not name a manager's check. Run returns a mistake as an error.
//
// The check may return a [Remark]. server.AddHealth limits how long it may take.
func (m *Manager) AddLivezCheck(name string, check func(ctx context.Context) error) {
	m.report.failed(m.probes.add("AddLivezCheck", &m.probes.live, name, check))
}

// AddReadyzCheck adds a check to Readyz, with the rules of AddLivezCheck. While it fails, Services
// send no requests to the pod.
func (m *Manager) AddReadyzCheck(name string, check func(ctx context.Context) error) {
	m.report.failed(m.probes.add("AddReadyzCheck", &m.probes.ready, name, check))
}

func (p *probes) added(to *[]Check) []Check {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	return slices.Clone(*to)
}

func (p *probes) add(method string, to *[]Check, name string, ask func(context.Context) error) error {
	switch {
	case len(validation.IsConfigMapKey(name)) > 0:
		return fmt.Errorf("%s: %q is not a valid name for a check; use letters, digits, '-', '_' and '.'", method, name)
	case ask == nil:
		return fmt.Errorf("%s: %q is a nil function", method, name)
	case reserved(name):
		return fmt.Errorf("%s: %q is the name of a check of the manager; choose another one", method, name)
	}
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	if slices.ContainsFunc(*to, func(c Check) bool { return c.Name() == name }) {
		return fmt.Errorf("%s: two checks are named %q; give each check, or each server, a name of its own", method, name)
	}
	*to = append(*to, newCheck(name, ask))
	return nil
}

func reserved(name string) bool {
	return slices.Contains([]string{"ping", "shutdown", "informers"}, name) ||
		strings.HasPrefix(name, "shards-") || strings.HasPrefix(name, "leader-election") || strings.HasPrefix(name, "controller-")
}

func informersCheck(states func() []hook.InformerState) *check {
	return newCheck("informers", func(context.Context) error {
		var troubled []string
		for _, s := range states() {
			if s.Err != nil {
				troubled = append(troubled, s.String())
			}
		}
		if troubled == nil {
			return nil
		}
		return Remark(strings.Join(troubled, "; "))
	})
}
