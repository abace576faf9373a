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

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/rbac"
)

const (
	reviewWait  = 10 * time.Second // for all reviews of the start
	reviewers   = 8                // reviews at a time
	mostReviews = 2000             // a kind in 1000 namespaces
	unservedAge = time.Minute      // of an answer that a kind is not served
)

// preflight logs the rights that the program lacks, once, on every replica. It delays nothing:
// informers and requests try again anyway, and the rights may be granted later.
func (m *Manager) preflight(ctx context.Context) error {
	calls := run.Calls{Of: "the reviews of rights"}
	r, err := run.Call(ctx, &calls, reviewWait, func(ctx context.Context) (rbac.Report, error) { return m.Rights(ctx), nil })
	if ctx.Err() == nil {
		m.logRights(&r, err)
	}
	if errors.As(err, new(*run.OverdueError)) {
		<-ctx.Done() // a request that hangs is an error of the stop, not before
	}
	return run.Join(moment, &calls)
}

func (m *Manager) logRights(r *rbac.Report, err error) {
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	if err != nil {
		m.report.logger().Info("not all rights could be reviewed", "err", err)
	}
	for _, c := range m.reviewed() {
		missing := slices.DeleteFunc(slices.Clone(r.Missing), func(rule rbac.Rule) bool { return rule.Cluster != c.name })
		if len(missing) == 0 {
			continue
		}
		texts := make([]string, 0, len(missing))
		for _, rule := range missing {
			texts = append(texts, rule.String())
		}
		logOf(m.report, c.name).Warn("rights are missing; what needs them waits until they are granted, such as by this role",
			"missing", texts, "role", rbac.Inline(m.o.Name+"-missing", rbac.Roles(missing)))
	}
}

// reviewed is an API server whose rights count.
type reviewed struct {
	name   string // of the cluster, as in rbac.Rule
	client *client.Client
	needs  []rbac.Need
}

// reviewed returns the API servers, with what is needed there.
func (m *Manager) reviewed() []*reviewed {
	own := &reviewed{client: m.client, needs: m.cache.Needs()}
	all := []*reviewed{own}
	for _, c := range m.clusters.current() {
		all = append(all, &reviewed{c.name, c.client, c.cache.Needs()})
	}
	for _, e := range m.leases.elected() {
		of := own
		if len(e.host.clients) > 0 { // the Lease is elsewhere
			of = &reviewed{name: e.host.clients[0].Config().Host, client: e.host.clients[0]}
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
		own.needs = append(own.needs, m.inNamespaces(needsOf(r))...)
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

// inNamespaces limits needs to the namespaces of the cache: there are the objects of events.
func (m *Manager) inNamespaces(needs []rbac.Need) (all []rbac.Need) {
	of := m.o.Cache.Namespaces
	if of == nil || slices.Contains(of.Elements(), "") {
		return needs
	}
	for _, n := range needs {
		for _, n.Namespace = range of.Elements() {
			all = append(all, n)
		}
	}
	return all
}

// Rights returns what the program needs, what it has used since its start, and what it lacks now:
// see package rbac. It sends a SelfSubjectAccessReview for each verb, at most 2000.
func (m *Manager) Rights(ctx context.Context) rbac.Report {
	r := rbac.Report{Name: m.o.Name, Needed: []rbac.Rule{}, Used: []rbac.Rule{}, Missing: []rbac.Rule{}}
	var wrong []error
	for _, c := range m.reviewed() {
		used, refused := c.client.Rights()
		needed, unknown := c.resolve(ctx)
		for _, rules := range [][]rbac.Rule{used, refused} {
			for i := range rules {
				rules[i].Cluster = c.name
			}
		}
		missing, err := c.review(ctx, slices.Concat(rbac.Merge(needed), refused))
		if err = errors.Join(unknown, err); err != nil {
			wrong, missing = append(wrong, err), append(missing, refused...)
		}
		r.Add(&rbac.Report{Needed: needed, Used: used, Missing: missing})
	}
	for i := range r.Missing {
		r.Missing[i].Why = cmp.Or(r.Missing[i].Why, "a request was refused") // no part declares it
	}
	if err := errors.Join(wrong...); err != nil {
		r.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return r
}

// resolve finds the resources of the needs, but not of kinds that are not served.
func (c *reviewed) resolve(ctx context.Context) (rules []rbac.Rule, unknown error) {
	for _, n := range c.needs {
		r := n.Rule
		r.Cluster = c.name
		if n.Kind.Kind != "" {
			mapping, err := c.client.MappingWithin(ctx, n.Kind, unservedAge)
			switch {
			case meta.IsNoMatchError(err): // its informer waits
				continue
			case err != nil:
				unknown = err
				continue
			case mapping.Scope.Name() == meta.RESTScopeNameRoot:
				r.Namespace = ""
			}
			r.Group = mapping.Resource.Group
			r.Resource = strings.TrimSuffix(mapping.Resource.Resource+"/"+r.Resource, "/")
		}
		rules = append(rules, r)
	}
	return rules, unknown
}

// review returns the rules that the API server denies, and an error if it did not review all.
func (c *reviewed) review(ctx context.Context, rules []rbac.Rule) (missing []rbac.Rule, err error) {
	api, err := authorization.NewForConfigAndClient(c.client.Config(), c.client.HTTPClient())
	if err != nil {
		return nil, err
	}
	var all []rbac.Rule // with one verb, and at most one name
	for _, r := range rules {
		for _, verb := range r.Verbs {
			one := r
			one.Verbs = []string{verb}
			for _, name := range r.Names {
				one.Names = []string{name}
				all = append(all, one)
			}
			if len(r.Names) == 0 {
				all = append(all, one)
			}
		}
	}
	if len(all) > mostReviews {
		err = fmt.Errorf("the program needs %d rights, and only the first %d are reviewed", len(all), mostReviews)
		all = all[:mostReviews]
	}
	denied, failed := make([]bool, len(all)), make([]error, reviewers)
	var reviewing sync.WaitGroup
	for i := range reviewers {
		reviewing.Go(func() {
			for n := i; n < len(all) && failed[i] == nil; n += reviewers {
				denied[n], failed[i] = deny(ctx, api.SelfSubjectAccessReviews(), &all[n])
			}
		})
	}
	reviewing.Wait()
	for n := range all {
		if denied[n] {
			missing = append(missing, all[n])
		}
	}
	for _, f := range failed {
		if f != nil { // the others are about the same
			return missing, f
		}
	}
	return missing, err
}

func deny(ctx context.Context, api authorization.SelfSubjectAccessReviewInterface, r *rbac.Rule) (bool, error) {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	about := &authorizationv1.ResourceAttributes{Namespace: r.Namespace, Verb: r.Verbs[0], Group: r.Group, Resource: resource, Subresource: subresource}
	if len(r.Names) > 0 {
		about.Name = r.Names[0]
	}
	answer, err := api.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: about}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("SelfSubjectAccessReview: %w", err)
	}
	return !answer.Status.Allowed, nil
}
