// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"sync"

	"github.com/setpoint-dev/setpoint/why"
)

// Explain explains what the controllers do with an object: see package why. It calls the handlers
// and the predicates of their sources. On a standby, it names the replica that leads.
func (m *Manager) Explain(ctx context.Context, o why.Object) []why.Answer {
	all := m.explainWatched(ctx, o)
	if len(all) == 0 && o.Values {
		all = m.explainUnwatched(ctx, o)
	}
	return all
}

func (m *Manager) explainWatched(ctx context.Context, o why.Object) (all []why.Answer) {
	controllers := m.registry.current()
	answers := make([][]why.Answer, len(controllers))
	var asking sync.WaitGroup
	for i, c := range controllers {
		if e, ok := c.Controller.(why.Explainer); ok {
			asking.Go(func() { answers[i] = e.Explain(ctx, o) })
		}
	}
	asking.Wait()
	for i, c := range controllers {
		for _, a := range answers[i] {
			if a.Reason == why.NotLeading {
				m.leases.explain(c.under, &a)
			}
			all = append(all, a)
		}
	}
	return all
}

// Watches returns the kinds that the controllers watch, for package why.
func (m *Manager) Watches() (kinds []string) {
	for _, c := range m.registry.current() {
		if e, ok := c.Controller.(why.Explainer); ok {
			kinds = append(kinds, e.Watches()...)
		}
	}
	return kinds
}

// explain adds who leads to the answer of a controller that does not lead.
func (ls *leases) explain(under *group, a *why.Answer) {
	for _, e := range ls.electedOver(under) {
		trouble, leader := e.trouble.Load(), e.leader.Load()
		a.Evidence = append(a.Evidence, "lease: "+e.String(), "identity of this replica: "+e.Identity())
		switch {
		case e.members != nil:
			a.Cause, a.Remedy = "this replica is no member of the group "+e.String(), "ask the members"
			if _, err := e.members.Ready(); err != nil {
				a.Cause += ": " + err.Error()
			}
		case trouble != nil:
			a.Cause, a.Remedy = fmt.Sprintf("this replica does not lead, and cannot use the lease %s: %v", e, *trouble), "make the Lease usable"
		case leader != nil && *leader != "" && *leader != e.Identity():
			a.Cause, a.Remedy = "this replica does not lead; "+*leader+" leads", "ask "+*leader
		case !e.tried.Load():
			a.Cause, a.Remedy = "this replica does not lead, and campaigns only when its controllers are synced", "look at the state of the informers"
		default:
			a.Cause, a.Remedy = "no replica leads, as far as this one knows; it campaigns for the lease "+e.String(), "wait, at most the lease's duration"
		}
	}
}

func (ls *leases) electedOver(under *group) (all []*elected) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		if e, ok := l.leadership.(*elected); ok && l.group == under {
			all = append(all, e)
		}
	}
	return all
}
