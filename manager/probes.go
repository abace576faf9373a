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
	"github.com/setpoint-dev/setpoint/server"
)

type probes struct {
	server.Health

	roster                                 *roster // its lock guards live and ready
	leases                                 *leases
	ping, informers, certificate, shutdown *server.Check
	webhooks                               *server.Check
	live, ready                            []*server.Check // of AddLivezCheck and AddReadyzCheck
}

func newProbes(w Webhooks, r *roster, l *leases, states func() []hook.InformerState, main, metrics *server.Server) *probes {
	p := &probes{
		roster: r, leases: l, informers: informersCheck(states),
		ping: server.NewCheck("ping", func(context.Context) error { return nil }),
		shutdown: server.NewCheck("shutdown", func(context.Context) error {
			if r.stops() {
				return errors.New("the manager is stopping")
			}
			return nil
		}),
	}
	if w != nil {
		p.webhooks = server.NewCheck("webhooks", w.Check)
	}
	if main != nil || metrics != nil {
		p.certificate = server.NewCheck("certificate", func(context.Context) error { return certificates(main, metrics) })
	}
	p.Checks = p
	return p
}

func (p *probes) Livez() []*server.Check {
	checks := []*server.Check{p.ping}
	for _, e := range p.leases.elected() {
		checks = append(checks, e.alive)
	}
	for _, c := range p.roster.current() {
		if c.alive != nil {
			checks = append(checks, c.alive)
		}
	}
	return append(checks, p.added(&p.live)...)
}

func (p *probes) Readyz() (checks []*server.Check) {
	for _, e := range p.leases.elected() {
		checks = append(checks, e.usable)
		if e.joined != nil {
			checks = append(checks, e.joined)
		}
	}
	for _, c := range p.roster.current() {
		checks = append(checks, c.synced)
	}
	checks = append(checks, p.informers)
	if p.certificate != nil {
		checks = append(checks, p.certificate)
	}
	if p.webhooks != nil {
		checks = append(checks, p.webhooks)
	}
	return append(append(checks, p.added(&p.ready)...), p.shutdown)
}

func (p *probes) added(to *[]*server.Check) []*server.Check {
	p.roster.mu.Lock()
	defer p.roster.mu.Unlock()
	return slices.Clone(*to)
}

func (p *probes) add(method string, to *[]*server.Check, name string, ask func(context.Context) error) error {
	switch {
	case len(validation.IsConfigMapKey(name)) > 0:
		return fmt.Errorf("%s: %q is not a valid name for a check; use letters, digits, '-', '_' and '.'", method, name)
	case ask == nil:
		return fmt.Errorf("%s: %q is a nil function", method, name)
	case reserved(name):
		return fmt.Errorf("%s: %q is the name of a check of the manager; choose another one", method, name)
	}
	p.roster.mu.Lock()
	defer p.roster.mu.Unlock()
	if slices.ContainsFunc(*to, func(c *server.Check) bool { return c.Name() == name }) {
		return fmt.Errorf("%s: two checks are named %q; give each a name of its own", method, name)
	}
	*to = append(*to, server.NewCheck(name, ask))
	return nil
}

func reserved(name string) bool {
	return slices.Contains([]string{"ping", "shutdown", "informers", "certificate", "webhooks"}, name) ||
		strings.HasPrefix(name, "shards-") || strings.HasPrefix(name, "leader-election") || strings.HasPrefix(name, "controller-")
}

// certificates reports an expired certificate of the metrics server as a remark, because the Pod
// can still serve its webhooks.
func certificates(main, metrics *server.Server) (err error) {
	if main != nil {
		err = main.CheckCertificate()
	}
	if metrics == nil || err != nil && !errors.As(err, new(server.Remark)) {
		return err
	}
	if of := metrics.CheckCertificate(); of != nil {
		err = server.Remark(strings.TrimPrefix(fmt.Sprintf("%v; %s: %v", err, metrics, of), "<nil>; "))
	}
	return err
}

func informersCheck(states func() []hook.InformerState) *server.Check {
	return server.NewCheck("informers", func(context.Context) error {
		var troubled []string
		for _, s := range states() {
			if s.Err != nil {
				troubled = append(troubled, s.String())
			}
		}
		if troubled == nil {
			return nil
		}
		return server.Remark(strings.Join(troubled, "; "))
	})
}
