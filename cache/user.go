// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"runtime"
)

// User is what a controller wants to know of its caches, and they of it, while it runs.
type User struct {
	// Relisted is called whenever an informer has listed everything again, perhaps before its store has
	// the list. It must not block.
	Relisted func()
	// Recovered is called whenever an informer begins to follow the API server, also after a failure. It
	// must not block.
	Recovered func()
	// Reconciles reports whether a Reconcile runs on the goroutine whose stack this is, as
	// runtime.Stack has it, or has started that goroutine, and of which key.
	Reconciles func(stack string) (key string, ok bool)
}

// Attach connects the caches of everything that is declared, now or later, with a controller, until
// detach is called. Detach once; a call of a User's function may be running then.
func (d *Declarations) Attach(u User) (detach func()) {
	d.user.Store(&u)
	d.attach()
	return func() {
		d.user.Store(nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		for c, detach := range d.caches {
			c.users.Delete(d)
			detach()
		}
		clear(d.caches)
	}
}

func (d *Declarations) attach() {
	n, u := d.now.Load(), d.user.Load()
	if n == nil || u == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.caches == nil {
		d.caches = map[*Cache]func(){}
	}
	for _, g := range n.groups {
		c := g.cache
		if d.caches[c] == nil {
			unlist, unrecover := c.relisted.listen(u.Relisted), c.recovered.listen(u.Recovered)
			d.caches[c] = func() { unlist(); unrecover() }
			c.users.Store(d, struct{}{})
		}
	}
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
	g.cache.users.Range(func(user, _ any) bool {
		d, _ := user.(*Declarations) // it has nothing else
		u := d.user.Load()
		if u == nil {
			return true
		}
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
