// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/rbac"
)

const (
	reviewers      = 8           // reviews at a time
	mostReviews    = 2000        // a kind in 1000 namespaces
	mostUnreviewed = 10          // rights without a review, in an error
	unservedAge    = time.Minute // of an answer that a kind is not served
)

var errNoAnswer = errors.New("no answer yet")

// reviewed is an API server whose rights count.
type reviewed struct {
	name          string // of the cluster, as in rbac.Rule
	client        *client.Client
	needs         []rbac.Need
	clusterScoped []rbac.Rule // needed only if a needed kind is cluster-scoped
	used          []rbac.Rule

	mu      sync.Mutex // guards what follows
	needed  []rbac.Rule
	unknown map[schema.GroupVersionKind]error
	rights  []rbac.Rule  // to review, each with one verb, and at most one name
	first   []int        // of rights: the refused ones
	open    map[int]bool // of rights: not reviewed yet
	missing []rbac.Rule
	failed  []error
}

func newReviewed(name string, c *client.Client, needs []rbac.Need) *reviewed {
	r := &reviewed{name: name, client: c, needs: needs, unknown: map[schema.GroupVersionKind]error{}, open: map[int]bool{}}
	used, refused := c.Rights()
	for _, rules := range [][]rbac.Rule{used, refused} {
		for i := range rules {
			rules[i].Cluster = name
		}
	}
	r.used, r.first = used, r.add(refused)
	return r
}

// review resolves the needs and reviews their rights. An API group that does not answer delays only
// its own kinds, and a review that hangs only itself.
func (c *reviewed) review(ctx context.Context) {
	api, err := authorization.NewForConfigAndClient(c.client.Config(), c.client.HTTPClient())
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = append(c.failed, err)
		return
	}
	versions := map[schema.GroupVersion][]rbac.Need{}
	c.mu.Lock()
	for _, n := range c.needs {
		versions[n.Kind.GroupVersion()] = append(versions[n.Kind.GroupVersion()], n)
		if n.Kind.Kind != "" {
			c.unknown[n.Kind] = errNoAnswer
		}
	}
	c.mu.Unlock()
	var open sync.WaitGroup
	defer open.Wait()
	turns := make(chan struct{}, reviewers)
	ask := func(rights []int) {
		for _, n := range rights {
			select {
			case turns <- struct{}{}:
			case <-ctx.Done():
				return
			}
			open.Go(func() {
				defer func() { <-turns }()
				c.ask(ctx, api.SelfSubjectAccessReviews(), n)
			})
		}
	}
	for _, needs := range versions {
		open.Go(func() { ask(c.add(rbac.Merge(c.resolve(ctx, needs)))) })
	}
	ask(c.first)
}

// resolve finds the resources of the needs, but not of kinds that are not served.
func (c *reviewed) resolve(ctx context.Context, needs []rbac.Need) (rules []rbac.Rule) {
	for _, n := range needs {
		r := n.Rule
		r.Cluster = c.name
		if n.Kind.Kind != "" {
			mapping, err := c.client.MappingWithin(ctx, n.Kind, unservedAge)
			c.resolved(n.Kind, err)
			if err != nil {
				continue
			}
			if mapping.Scope.Name() == meta.RESTScopeNameRoot {
				r.Namespace = ""
				rules = append(rules, c.clusterScoped...)
			}
			r.Group = mapping.Resource.Group
			r.Resource = strings.TrimSuffix(mapping.Resource.Resource+"/"+r.Resource, "/")
		}
		rules = append(rules, r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needed = append(c.needed, rules...)
	return rules
}

func (c *reviewed) resolved(kind schema.GroupVersionKind, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || meta.IsNoMatchError(err) { // then its informer waits
		delete(c.unknown, kind)
	} else {
		c.unknown[kind] = err
	}
}

// add adds rights to review, and returns their indexes.
func (c *reviewed) add(rules []rbac.Rule) (added []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rules {
		names := [][]string{nil}
		if len(r.Names) > 0 {
			names = slices.Collect(slices.Chunk(r.Names, 1))
		}
		for _, verb := range r.Verbs {
			for _, r.Names = range names {
				r.Verbs = []string{verb}
				n := len(c.rights)
				c.rights = append(c.rights, r)
				if c.open[n] = true; n < mostReviews {
					added = append(added, n)
				}
			}
		}
	}
	return added
}

// ask reviews a right, unless several reviews have failed: the next ones would, too.
func (c *reviewed) ask(ctx context.Context, api authorization.SelfSubjectAccessReviewInterface, n int) {
	c.mu.Lock()
	r, failed := c.rights[n], len(c.failed)
	c.mu.Unlock()
	if failed >= reviewers {
		return
	}
	denied, err := deny(ctx, api, &r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed = append(c.failed, err)
		return
	}
	delete(c.open, n)
	if denied {
		c.missing = append(c.missing, r)
	}
}

// report returns what is known, and an error that names what is not.
func (c *reviewed) report() (rbac.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := rbac.Report{Needed: rbac.Merge(c.needed), Used: c.used, Missing: slices.Clone(c.missing)}
	var wrong []error
	if len(c.failed) > 0 {
		wrong = append(wrong, c.failed[0]) // the others are about the same
	}
	for kind, err := range c.unknown {
		wrong = append(wrong, fmt.Errorf("the resource of %s is unknown: %w", kind, err))
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if len(c.rights) > mostReviews {
		wrong = append(wrong, fmt.Errorf("the program needs %d rights, and only the first %d are reviewed", len(c.rights), mostReviews))
	}
	for _, n := range c.first {
		if c.open[n] {
			r.Missing = append(r.Missing, c.rights[n])
		}
	}
	var names []string
	for _, n := range slices.Sorted(maps.Keys(c.open)) {
		if right := c.rights[n]; n < mostReviews && len(names) < mostUnreviewed {
			names = append(names, right.String())
		}
	}
	if len(names) > 0 {
		wrong = append(wrong, fmt.Errorf("rights without a review are %d, such as: %s", len(c.open), strings.Join(names, "; ")))
	}
	return r, errors.Join(wrong...)
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
