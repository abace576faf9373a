// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"io"
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
	mostRights     = 1000 // of about 300 bytes, and 100 for each namespace
	mostNamespaces = 16   // of a right
	mostNames      = 3    // of a right in a namespace
	mostText       = 4096 // of a refusal, which has the missing right in its first sentence
)

// rights are the rights that answered requests have used.
type rights struct {
	mu  sync.Mutex // guards writes of all, and of where of each use
	all atomic.Pointer[map[right]*use]
}

type right struct{ verb, group, resource, subresource string }

// use is where a right was used.
type use struct {
	where   atomic.Pointer[[]where] // one for each namespace, or one for all
	refused atomic.Pointer[where]   // of the last refused request, until one there succeeds
}

// where is never changed.
type where struct {
	namespace string
	all       bool     // namespaces: there are too many
	names     []string // nil: too many, or requests without a name
}

// used records a request that has an answer.
func (u *rights) used(req *http.Request, r *ledger.Request, resp *http.Response) {
	if r.Resource == "" || strings.HasPrefix(r.Resource, "selfsubject") { // every user may
		return
	}
	u.record(r, r.Verb, resp.StatusCode)
	if r.Verb == "create" || r.Subresource != "" {
		return
	}
	// Of an apply or update that creates, the API server wants create, too.
	switch {
	case resp.StatusCode == http.StatusCreated:
		u.record(r, "create", resp.StatusCode)
	case resp.StatusCode == http.StatusForbidden && strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch"):
		of := *r
		resp.Body = &forbidden{ReadCloser: resp.Body, missing: func() { u.record(&of, "create", http.StatusForbidden) }}
	}
}

// forbidden is the body of the answer to an apply that is refused. If an authorizer refuses it, the
// apply may need create. Admission and quotas refuse with another text.
type forbidden struct {
	io.ReadCloser

	text    []byte
	missing func() // nil after its call
}

// Read implements io.Reader.
func (r *forbidden) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.missing != nil && len(r.text) < mostText {
		r.text = append(r.text, p[:min(n, mostText-len(r.text))]...)
		if bytes.Contains(r.text, []byte(" cannot patch resource ")) || bytes.Contains(r.text, []byte(" cannot create resource ")) {
			r.missing()
			r.missing = nil
		}
	}
	return n, err
}

func (u *rights) record(r *ledger.Request, verb string, status int) {
	of := u.use(right{verb, r.Group, r.Resource, r.Subresource})
	if of == nil {
		return
	}
	if all := of.where.Load(); all == nil || !slices.ContainsFunc(*all, func(w where) bool { return w.has(r) }) {
		u.mu.Lock()
		of.add(r)
		u.mu.Unlock()
	}
	switch refused := of.refused.Load(); {
	case status == http.StatusForbidden:
		w := where{namespace: strings.Clone(r.Namespace)}.with(r, true)
		of.refused.Store(&w)
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
	return w.all || w.namespace == r.Namespace && (w.names == nil || r.Name != "" && slices.Contains(w.names, r.Name))
}

// add adds where a request was. The caller holds the lock.
func (u *use) add(r *ledger.Request) {
	var all []where
	if old := u.where.Load(); old != nil {
		all = slices.Clone(*old)
	}
	i := slices.IndexFunc(all, func(w where) bool { return w.all || w.namespace == r.Namespace })
	switch {
	case i >= 0:
		all[i] = all[i].with(r, false)
	case len(all) == mostNamespaces:
		all = []where{{all: true}}
	default:
		all = append(all, where{namespace: strings.Clone(r.Namespace)}.with(r, true))
	}
	u.where.Store(&all)
}

func (w where) with(r *ledger.Request, first bool) where {
	switch {
	case r.Name == "" || w.names == nil && !first || len(w.names) == mostNames && !slices.Contains(w.names, r.Name):
		w.names = nil
	case !slices.Contains(w.names, r.Name):
		w.names = append([]string{strings.Clone(r.Name)}, w.names...)
	}
	return w
}

func (w *where) rule(of right) rbac.Rule {
	r := rbac.Rule{Group: of.group, Resource: of.resource, Verbs: []string{of.verb}, Namespace: w.namespace, Names: w.names}
	if of.subresource != "" {
		r.Resource += "/" + of.subresource
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
		if all := u.where.Load(); all != nil {
			for _, w := range *all {
				used = append(used, w.rule(of))
			}
		}
		if w := u.refused.Load(); w != nil {
			refused = append(refused, w.rule(of))
		}
	}
	return rbac.Merge(used), rbac.Merge(refused)
}
