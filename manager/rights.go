// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/rbac"
)

const (
	reviewWait = 10 * time.Second // for all reviews
	mostLogged = 8 << 10          // bytes of missing rights and their role in a line of the log
)

// preflight logs the rights that the program lacks, once, on every replica. It delays nothing:
// informers and requests try again anyway, and the rights may be granted later.
func (m *Manager) preflight(ctx context.Context) error {
	if r := m.Rights(ctx); ctx.Err() == nil {
		m.logRights(&r)
	}
	<-ctx.Done()
	if m.reviews.Stuck(0) == nil {
		return nil
	}
	return run.Join(moment, &m.reviews) // a request that hangs is an error of the stop, not before
}

func (m *Manager) logRights(r *rbac.Report) {
	// A simulated API server with few kinds has no reviews.
	if r.Error != "" && !strings.Contains(r.Error, "could not find the requested resource") {
		m.report.logger().Info("not all rights could be reviewed", "err", r.Error)
	}
	for _, c := range m.reviewed() {
		missing := slices.DeleteFunc(slices.Clone(r.Missing), func(rule rbac.Rule) bool { return rule.Cluster != c.name })
		if len(missing) == 0 {
			continue
		}
		texts, size := make([]string, 0, len(missing)), 0
		for _, rule := range missing {
			texts = append(texts, rule.String())
			size += len(texts[len(texts)-1])
		}
		log, roles := logOf(m.report, c.name), rbac.Roles(missing)
		if role := rbac.Inline(m.o.Name+"-missing", roles); size+len(role) <= mostLogged {
			log.Warn("rights are missing; what needs them waits until they are granted, such as by this role", "missing", texts, "role", role)
		} else {
			log.Warn("rights are missing; what needs them waits until they are granted; kubectl setpoint rbac prints roles for all of them",
				"rights", len(missing), "roles", len(roles), "first", cut(texts[0], mostLogged))
		}
	}
}

func cut(text string, most int) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") }

// reviewed returns the API servers, with what is needed and used there.
func (m *Manager) reviewed() []*reviewed {
	own := newReviewed("", m.client, m.cache.Needs())
	all := []*reviewed{own}
	for _, c := range m.clusters.current() {
		all = append(all, newReviewed(c.name, c.client, c.cache.Needs()))
	}
	for _, e := range m.leases.elected() {
		of := own
		if len(e.host.clients) > 0 { // the Lease is elsewhere
			of = newReviewed(e.host.clients[0].Config().Host, e.host.clients[0], nil)
			all = append(all, of)
		}
		of.needs = append(of.needs, needsOf(e.Elector)...)
	}
	m.registry.mu.Lock()
	servers := slices.Clone(m.servers)
	m.registry.mu.Unlock()
	for _, s := range servers {
		own.needs = append(own.needs, needsOf(s)...)
	}
	for _, r := range m.registry.recorders.current() {
		m.addEvents(own, needsOf(r))
	}
	for _, c := range m.registry.current() {
		for _, n := range needsOf(c.Controller) {
			if i := slices.IndexFunc(all, func(r *reviewed) bool { return r.name == n.Cluster }); i >= 0 {
				all[i].needs = append(all[i].needs, n)
			}
		}
	}
	return all
}

func needsOf(part any) []rbac.Need {
	if n, ok := part.(rbac.Needer); ok {
		return n.Needs()
	}
	return nil
}

// addEvents limits needs of a recorder to the namespaces of the cache: there are the objects of
// events. Events of cluster-scoped objects are in a namespace of the recorder.
func (m *Manager) addEvents(own *reviewed, needs []rbac.Need) {
	of := m.o.Cache.Namespaces
	everywhere := of == nil || slices.Contains(of.Elements(), "")
	for _, n := range needs {
		switch {
		case everywhere:
			own.needs = append(own.needs, n)
		case n.Namespace != "":
			own.clusterScoped = append(own.clusterScoped, n.Rule)
		default:
			for _, n.Namespace = range of.Elements() {
				own.needs = append(own.needs, n)
			}
		}
	}
}

// Rights returns what the program needs, what it has used since its start, and what it lacks now:
// see package rbac. It sends a SelfSubjectAccessReview for each verb, at most 2000 to an API
// server. It returns at the end of ctx, at most after 10 s, with what is known by then: its Error
// names what is not. Concurrent calls wait for each other.
func (m *Manager) Rights(ctx context.Context) rbac.Report {
	r := rbac.Report{Name: m.o.Name, Needed: []rbac.Rule{}, Used: []rbac.Rule{}, Missing: []rbac.Rule{}}
	all := m.reviewed()
	wrong := []error{m.review(ctx, all)}
	for _, c := range all {
		of, err := c.report()
		r.Add(&of)
		wrong = append(wrong, err)
	}
	for i := range r.Missing {
		r.Missing[i].Why = cmp.Or(r.Missing[i].Why, "a request was refused") // no part declares it
	}
	if err := errors.Join(wrong...); err != nil {
		r.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return r
}

// review reviews the rights to API servers at the same time. Requests that ignore the end of ctx go
// on, and until they return there are no further ones.
func (m *Manager) review(ctx context.Context, all []*reviewed) error {
	ctx, cancel := context.WithTimeout(ctx, reviewWait)
	defer cancel()
	select {
	case m.reviewing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("an earlier review of rights has not returned: %w", ctx.Err())
	}
	_, err := run.Call(ctx, &m.reviews, reviewWait, func(ctx context.Context) (none struct{}, err error) {
		defer func() { <-m.reviewing }()
		var open sync.WaitGroup
		for _, c := range all {
			open.Go(func() { c.review(ctx) })
		}
		open.Wait()
		return none, nil
	})
	return err
}
