// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Declarations are what may be read in a context. A controller makes them of what it watches and of
// what was given to its Reads, so that a read of anything else, which nothing would wait for, is an
// error in the first Reconcile that does it, and not a hidden watch. So is a read by the goroutine
// of a Reconcile, or by one that it has started, with a context that is not the Reconcile's, unless
// any controller declares the handle. The zero value declares nothing; it is safe for concurrent use.
type Declarations struct {
	now  atomic.Pointer[declarations]
	user atomic.Pointer[User] // see Attach

	caches sync.Map // of *Cache, which have it among their users
}

type declarations struct {
	who    string
	groups []*group
}

// Declared is what can be declared. A *Handle is one.
type Declared interface{ scope() *group }

func (h *Handle[T]) scope() *group {
	if h == nil {
		return nil
	}
	return h.group
}

// Set makes the declarations of who (named in errors) these and no others. Handles of equal scopes count as the same: of Sets,
// only one and the same is equal.
func (d *Declarations) Set(who string, of ...Declared) {
	n := &declarations{who: who}
	for _, o := range of {
		if o == nil {
			continue
		}
		if g := o.scope(); g != nil {
			g.declared.Store(true)
			n.groups = append(n.groups, g)
		}
	}
	d.now.Store(n)
	d.attach()
}

// Context returns a context in which what is not declared cannot be read from a cache.
func (d *Declarations) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, declarationsKey{}, d)
}

type declarationsKey struct{}

// declaredIn returns an error that names the missing declaration, in the context of a Reconcile or on
// its goroutine.
func (g *group) declaredIn(ctx context.Context) error {
	if d, ok := ctx.Value(declarationsKey{}).(*Declarations); ok {
		return d.missing(g)
	}
	return g.readByReconcile()
}

// missing returns an error that says that a group is not declared, or nil.
func (d *Declarations) missing(g *group) error {
	n := d.now.Load()
	if n == nil {
		n = &declarations{who: "whoever reads"}
	}
	if slices.Contains(n.groups, g) || slices.ContainsFunc(n.groups, g.sameScope) {
		return nil
	}
	return fmt.Errorf("%s neither watches %s nor declares that it reads it; give the handle to its Reads", n.who, g)
}

// Attach connects the caches of everything that is declared, now or later, with a controller, until
// detach is called. Detach once; a call of a User's function may be running then.
func (d *Declarations) Attach(u User) (detach func()) {
	d.user.Store(&u)
	d.attach()
	return func() {
		d.user.Store(nil)
		d.caches.Range(func(c, _ any) bool {
			c.(*Cache).users.Delete(d) //nolint:forcetypeassert // it has nothing else
			return true
		})
		d.caches.Clear()
	}
}

func (d *Declarations) attach() {
	u := d.user.Load()
	if u == nil {
		return
	}
	for _, g := range d.groups() {
		d.caches.Store(g.cache, nil)
		g.cache.users.Store(d, u)
	}
}

// groups returns what is declared.
func (d *Declarations) groups() []*group {
	if n := d.now.Load(); n != nil {
		return n.groups
	}
	return nil
}

// readByReconcile returns an error if a Reconcile reads what its controller does not declare, with a
// context that is not its own. It looks at the stack, which takes microseconds, but only where no
// controller declares the handle.
func (g *group) readByReconcile() error {
	if g.declared.Load() {
		return nil
	}
	var err error
	var stack string
	g.cache.users.Range(func(who, user any) bool {
		d, u := who.(*Declarations), user.(*User) //nolint:forcetypeassert // it has nothing else
		if stack == "" {
			buf := make([]byte, 32<<10) // what has started the goroutine is last
			stack = string(buf[:runtime.Stack(buf, false)])
		}
		key, ok := u.Reconciles(stack)
		if !ok {
			return true
		}
		if err = d.missing(g); err != nil {
			err = fmt.Errorf("%w; the Reconcile of %s read it with a context that is not its own", err, key)
		}
		return false
	})
	return err
}
