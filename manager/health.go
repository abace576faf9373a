// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// HealthOptions configures a plain HTTP server for the kubelet's probes:
//
//	/livez, /healthz  is there a reason to replace the process?
//	/readyz           may it be sent requests?
//	/livez/NAME       one check of them
//
// The answers have the form that Kubernetes' own components use: 200 and "ok", or 500 and a line for each check. With ?verbose
// there is a line for each check in any case; ?exclude=NAME leaves one out. Other than theirs, these lines say what is wrong: serve
// them where the kubelet looks, and not to the world.
//
// The checks of /livez:
//
//	ping                  always well
//	leader-election-NAME  of each Lease: fails when work goes on under a term that is lost; see leaderelection.Elector.Check
//	controller-NAME       of each controller: see StalledAfter
//
// The checks of /readyz:
//
//	controller-NAME  of each controller: fails until it could lead, or the manager is Ready; then it stays well. A replica that
//	                 stands by is ready.
//	leader-election-NAME  of each Lease: fails until it could be read or written once: who has no right to it cannot take over. Then
//	                 it stays well, and with ?verbose says what is wrong with it
//	informers        always well; with ?verbose it says which informers are in trouble
//	certificate      of Options.Server: fails when the certificate in use has expired; with ?verbose it says that a newer one is
//	                 broken
//	shutdown         fails when a stop has been asked for, so that load balancers turn away while requests are still answered
//
// and those of [Manager.AddLivezCheck] and [Manager.AddReadyzCheck].
type HealthOptions struct {
	// Address is where to listen: host:port, :port for all interfaces, port 0 for a free one. Default: :8081.
	Address string
	// Listener is used in the place of Address: for tests, or a socket that somebody else has opened. Run closes it when it has
	// served. Default: none.
	Listener net.Listener
	// StalledAfter has /livez fail when a controller has keys ready and for that long no Reconcile has begun or returned: see
	// controller.Controller.Alive. It must be longer than any Reconcile takes, else slow work has the process restarted again and
	// again. Default: 0, never.
	StalledAfter time.Duration
}

func (o *HealthOptions) validate() error {
	var wrong []error
	if o.Address != "" && o.Listener != nil {
		wrong = append(wrong, errors.New("manager.Options.Health: both Address and Listener are set; set one"))
	}
	if o.StalledAfter < 0 {
		wrong = append(wrong, fmt.Errorf("manager.Options.Health.StalledAfter: %s, must not be negative", o.StalledAfter))
	}
	return errors.Join(wrong...)
}

// AddLivezCheck adds a check to /livez, before Run or while it runs. One that fails has the kubelet restart the process, so it should
// fail only where that helps. The name consists of letters, digits, '-', '_' and '.', and is not one of the manager's.
//
// The context of a check ends after 700 ms, which is less than a probe's default timeout of a second. A check that goes on all the
// same, or panics, has failed; it is not called again before it has returned. Without Options.Health nobody asks.
func (m *Manager) AddLivezCheck(name string, check func(ctx context.Context) error) {
	m.complain(m.health.add("AddLivezCheck", &m.health.live, name, check))
}

// AddReadyzCheck adds a check to /readyz, as AddLivezCheck does to /livez. One that fails has Services send nothing to the pod.
func (m *Manager) AddReadyzCheck(name string, check func(ctx context.Context) error) {
	m.complain(m.health.add("AddReadyzCheck", &m.health.ready, name, check))
}

// openHealth opens the health server, if it is asked for.
func (m *Manager) openHealth() (*server, error) {
	o := m.o.Health
	if o == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	address := o.Address
	if address == "" {
		address = ":8081"
	}
	s, err := m.newServer("health server", "Health", address, o.Listener)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/healthz", "/readyz"} {
		checks := m.livez
		if path == "/readyz" {
			checks = m.readyz
		}
		answer := m.guard(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.health.serve(w, r, path, checks()) }))
		mux.Handle("GET "+path, answer)
		mux.Handle("GET "+path+"/{name...}", answer)
	}
	s.handler, s.join = mux, m.health.asked.Wait
	return s, nil
}

// health is what is known of the checks.
type health struct {
	asked sync.WaitGroup // checks that have not returned

	mu          sync.Mutex // guards what follows
	live, ready []check    // those that were added

	shutdown, informers, certificate probe // of the manager's own checks
}

// ownName says whether a check of the manager may be named so.
func ownName(name string) bool {
	return slices.Contains([]string{"ping", "shutdown", "informers", "certificate"}, name) ||
		strings.HasPrefix(name, "leader-election") || strings.HasPrefix(name, "controller-")
}

func (h *health) add(method string, to *[]check, name string, ask func(context.Context) error) error {
	switch {
	case len(validation.IsConfigMapKey(name)) > 0:
		return fmt.Errorf("%s: %q is no name for a check; use letters, digits, '-', '_' and '.'", method, name)
	case ask == nil:
		return fmt.Errorf("%s: %q is a nil function", method, name)
	case ownName(name):
		return fmt.Errorf("%s: %q is the name of a check of the manager; choose another one", method, name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(*to, func(c check) bool { return c.name == name }) {
		return fmt.Errorf("%s: two checks are named %q; give each a name of its own", method, name)
	}
	*to = append(slices.Clip(*to), check{name: name, ask: ask, probe: &probe{}})
	return nil
}

func (h *health) added(to *[]check) []check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *to
}

// livez returns the checks of /livez.
func (m *Manager) livez() []check {
	leases, controllers, _ := m.watched()
	checks := []check{{name: "ping", ask: func(context.Context) error { return nil }, probe: &probe{}}}
	for _, l := range leases {
		if l.elector != nil {
			checks = append(checks, check{l.elector.Name(), func(context.Context) error { return l.elector.Check(nil) }, &l.alive})
		}
	}
	for _, c := range controllers {
		if alive, ok := c.Controller.(interface {
			Alive(limit time.Duration) func() error
		}); ok && m.o.Health.StalledAfter > 0 {
			ask := alive.Alive(m.o.Health.StalledAfter)
			checks = append(checks, check{"controller-" + c.Name(), func(context.Context) error { return ask() }, &c.alive})
		}
	}
	return append(checks, m.health.added(&m.health.live)...)
}

// readyz returns the checks of /readyz.
func (m *Manager) readyz() []check {
	leases, controllers, stopping := m.watched()
	var checks []check
	for _, l := range leases {
		if l.elector != nil {
			checks = append(checks, check{l.elector.Name(), func(context.Context) error { return l.usable() }, &l.usability})
		}
	}
	for _, c := range controllers {
		checks = append(checks, check{"controller-" + c.Name(), func(context.Context) error { return c.isReady(m.ready) }, &c.synced})
	}
	checks = append(checks, check{"informers", m.informersWell, &m.health.informers})
	if m.o.Server != nil {
		checks = append(checks, check{"certificate", func(context.Context) error { return m.web.certificate.check() }, &m.health.certificate})
	}
	checks = append(checks, m.health.added(&m.health.ready)...)
	return append(checks, check{"shutdown", func(context.Context) error {
		if stopping {
			return errors.New("a stop was asked for")
		}
		return nil
	}, &m.health.shutdown})
}

// watched returns what the manager's own checks look at.
func (m *Manager) watched() (leases []*Lease, controllers []*removable, stopping bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.leases), slices.Clone(m.controllers), m.stopping
}

// isReady says what the controller waits for, unless the manager is ready.
func (r *removable) isReady(ready <-chan struct{}) error {
	var unsynced []string
	if c, ok := r.Controller.(interface{ Unsynced() []string }); ok {
		unsynced = c.Unsynced()
	}
	waits := strings.Join(unsynced, "; ")
	switch {
	case !closed(r.Synced()) && !closed(ready) && waits == "":
		return errors.New("it is not synced")
	case !closed(r.Synced()) && !closed(ready):
		return errors.New("it waits for its sources: " + waits)
	case waits != "":
		return remark(waits)
	default:
		return nil
	}
}

// informersWell remarks which informers are in trouble.
func (m *Manager) informersWell(context.Context) error {
	var troubled []string
	for _, s := range m.cache.States() {
		if s.Err != nil {
			troubled = append(troubled, s.String())
		}
	}
	if troubled == nil {
		return nil
	}
	return remark(strings.Join(troubled, "; "))
}
