// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/internal/connection"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/rbac"
)

const (
	mostRights = 1000 // of about 300 bytes each
	mostNames  = 3    // of a right
)

// rights are the rights that answered requests have used.
type rights struct {
	mu  sync.Mutex // guards writes of all, and of where of each use
	all atomic.Pointer[map[right]*use]
}

type right struct{ verb, group, resource, subresource string }

// use is where a right was used.
type use struct {
	where   atomic.Pointer[where]
	refused atomic.Pointer[where] // of the last refused request, until one there succeeds
}

// where is never changed.
type where struct {
	namespace string
	several   bool     // namespaces
	names     []string // nil: too many, or requests without a name
}

// used records a request that has an answer.
func (u *rights) used(r *ledger.Request, status int) {
	if r.Resource == "" || strings.HasPrefix(r.Resource, "selfsubject") { // every user may
		return
	}
	u.record(r, r.Verb, status)
	// Of a patch or update that creates, the API server wants create, too.
	if r.Verb != "create" && (status == http.StatusCreated || status == http.StatusForbidden && r.Verb == "patch") && r.Subresource == "" {
		u.record(r, "create", status)
	}
}

func (u *rights) record(r *ledger.Request, verb string, status int) {
	of := u.use(right{verb, r.Group, r.Resource, r.Subresource})
	if of == nil {
		return
	}
	if !of.where.Load().has(r) {
		u.mu.Lock()
		of.where.Store(of.where.Load().with(r))
		u.mu.Unlock()
	}
	switch refused := of.refused.Load(); {
	case status == http.StatusForbidden:
		of.refused.Store((*where)(nil).with(r))
	case refused != nil && refused.namespace == r.Namespace:
		of.refused.Store(nil)
	}
}

// use returns nil if there are too many rights.
func (u *rights) use(of right) *use {
	if all := u.all.Load(); all != nil {
		if found := (*all)[of]; found != nil {
			return found
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	all := map[right]*use{}
	if old := u.all.Load(); old != nil {
		if found := (*old)[of]; found != nil || len(*old) >= mostRights {
			return found
		}
		all = maps.Clone(*old)
	}
	// The strings are parts of a URL, which must not stay in memory.
	of = right{strings.Clone(of.verb), strings.Clone(of.group), strings.Clone(of.resource), strings.Clone(of.subresource)}
	all[of] = &use{}
	u.all.Store(&all)
	return all[of]
}

func (w *where) has(r *ledger.Request) bool {
	return w != nil && (w.several || w.namespace == r.Namespace) && (w.names == nil || r.Name != "" && slices.Contains(w.names, r.Name))
}

func (w *where) with(r *ledger.Request) *where {
	name := []string{strings.Clone(r.Name)}
	switch {
	case w == nil && r.Name == "":
		return &where{namespace: strings.Clone(r.Namespace)}
	case w == nil:
		return &where{namespace: strings.Clone(r.Namespace), names: name}
	}
	next := *w
	next.several = w.several || w.namespace != r.Namespace
	switch {
	case r.Name == "" || w.names == nil || len(w.names) == mostNames && !slices.Contains(w.names, r.Name):
		next.names = nil
	case !slices.Contains(w.names, r.Name):
		next.names = append(name, w.names...)
	}
	return &next
}

func (w *where) rule(of right) rbac.Rule {
	r := rbac.Rule{Group: of.group, Resource: of.resource, Verbs: []string{of.verb}, Namespace: w.namespace, Names: w.names}
	if of.subresource != "" {
		r.Resource += "/" + of.subresource
	}
	if w.several {
		r.Namespace, r.Names = "", nil
	}
	return r
}

// Rights returns the rights that requests through rt have used, and the ones of the last refused
// request of each kind.
func Rights(rt http.RoundTripper) (used, refused []rbac.Rule) {
	own := connection.Below[*roundTripper](rt)
	if own == nil || own.rights.all.Load() == nil {
		return nil, nil
	}
	for of, u := range *own.rights.all.Load() {
		if w := u.where.Load(); w != nil {
			used = append(used, w.rule(of))
		}
		if w := u.refused.Load(); w != nil {
			refused = append(refused, w.rule(of))
		}
	}
	return rbac.Merge(used), rbac.Merge(refused)
}
