// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// NewDeclarations returns the declarations of a controller, which declare nothing at first. It is
// for package controller. Handles of equal scopes count as the same; scopes with different Sets are
// never equal.
func NewDeclarations() consistency.Declarations { return &declarations{} }

type declarations struct {
	now  atomic.Pointer[declared]
	user atomic.Pointer[consistency.User] // see Attach

	caches sync.Map // set of *Cache that have d among their users
}

type declared struct {
	who     string
	groups  []*group
	doubles map[*group]bool // those with a double; nil in most controllers
}

// Declared is a handle that can be declared, such as a *Handle.
type Declared interface{ scope() *group }

// scope returns nil for a handle that cannot show a write.
func (h *Handle[T]) scope() *group {
	if h == nil || h.handle.group == nil || !h.handle.group.key.foreign.hasStore() {
		return nil
	}
	return h.handle.group
}

// scopeOf returns nil for all but handles that can show a write.
func scopeOf(handle any) *group {
	if h, ok := handle.(Declared); ok {
		return h.scope()
	}
	return nil
}

func (d *declarations) Declare(who string, handles ...any) {
	n := &declared{who: who}
	for _, h := range handles {
		if g := scopeOf(h); g != nil {
			n.groups = append(n.groups, g)
		}
	}
	n.findDoubles()
	d.now.Store(n)
	d.attach()
}

func (d *declarations) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, declarationsKey{}, d)
}

type declarationsKey struct{}

func (g *group) declaredIn(ctx context.Context) error {
	if d, ok := ctx.Value(declarationsKey{}).(*declarations); ok {
		return d.missing(g)
	}
	return nil
}

func (d *declarations) missing(g *group) error {
	n := d.now.Load()
	if n == nil {
		n = &declared{who: "the caller"}
	}
	if slices.Contains(n.groups, g) || slices.ContainsFunc(n.groups, g.sameScope) {
		return nil
	}
	return &consistency.UndeclaredError{Text: fmt.Sprintf("%s does not declare %s; pass the handle to its Reads", n.who, g)}
}

func (d *declarations) Attach(u consistency.User) (detach func()) {
	d.user.Store(&u)
	d.attach()
	return func() {
		d.user.Store(nil)
		d.caches.Range(func(c, _ any) bool {
			c.(*Cache).users.Delete(d) //nolint:forcetypeassert // caches has only *Cache
			return true
		})
		d.caches.Clear()
	}
}

func (d *declarations) attach() {
	u := d.user.Load()
	if u == nil {
		return
	}
	for _, g := range d.groups() {
		d.caches.Store(g.cache, nil)
		g.cache.users.Store(d, *u)
	}
}

func (d *declarations) groups() []*group {
	if n := d.now.Load(); n != nil {
		return n.groups
	}
	return nil
}

// DeclaredBy returns the owners of attached declarations with a handle of the cache, sorted, such
// as `the controller "website"`.
func (c *Cache) DeclaredBy() []string {
	var owners []string
	c.users.Range(func(d, _ any) bool {
		n := d.(*declarations).now.Load() //nolint:forcetypeassert // the only type
		if n != nil && slices.ContainsFunc(n.groups, func(g *group) bool { return g.cache == c }) {
			owners = append(owners, n.who)
		}
		return true
	})
	slices.Sort(owners)
	return owners
}
