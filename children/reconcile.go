// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// call is one call of Reconcile or Delete.
type call[O client.Object] struct {
	set   *Set[O]
	owner O
	all   []*child
	// owned has the versions in the cache of each kind that could be read.
	owned map[Kind]map[types.NamespacedName]cache.Version
	// unclear are kinds that may have a desired child whose name or kind is unknown. They are not
	// pruned.
	unclear map[Kind]bool
	known   findings
	learned findings
	pruned  []Child
}

// child is a desired child.
type child struct {
	*desired
	Child

	print      uint64 // of the desired fields and of the options
	printed    bool
	body       []byte   // JSON
	sum        string   // of body
	needs      []*child // those before it
	dependents []*child // those after it
	done       bool
	panicked   string // what applyOne panicked with, and the stack
}

func (c *child) fail(err error) { c.State, c.Err, c.done = Failed, err, true }

// Reconcile applies the desired children of an owner that differ, in their order, and deletes those
// that are no longer desired. The error joins the errors of all children. owner must have been
// read, and not be in deletion: then call Delete. See the package doc.
func (s *Set[O]) Reconcile(ctx context.Context, owner O, desired ...client.ApplyConfiguration) (Result, error) {
	if err := s.check(owner); err != nil {
		return Result{}, err
	}
	if owner.GetDeletionTimestamp() != nil {
		return Result{}, fmt.Errorf("children: %s is being deleted; call Delete in a finalizer step, or do nothing", object.Name(object.Key(owner)))
	}
	c := s.begin(ctx, owner, desired)
	c.apply(ctx)
	c.prune(ctx)
	result := c.result()
	return result, result.err()
}

func (s *Set[O]) check(owner O) error {
	if argument.IsNil(owner) || owner.GetUID() == "" || owner.GetName() == "" {
		return errors.New("children: the owner is nil, or has no UID; give an object that was read")
	}
	return nil
}

func (s *Set[O]) begin(ctx context.Context, owner O, desired []client.ApplyConfiguration) *call[O] {
	c := &call[O]{set: s, owner: owner, owned: map[Kind]map[types.NamespacedName]cache.Version{}, unclear: map[Kind]bool{}, learned: findings{}}
	if known, ok := s.known.Get(owner.GetUID()); ok {
		c.known, _ = known.(findings)
	}
	for _, d := range desired {
		c.all = append(c.all, c.resolve(ctx, d))
	}
	c.findTwins()
	c.order()
	for _, k := range s.kinds {
		c.read(ctx, k)
	}
	return c
}

// resolve finds out a desired child's kind, name and content.
func (c *call[O]) resolve(ctx context.Context, config client.ApplyConfiguration) *child {
	d := &child{desired: desiredOf(config)}
	if argument.IsNil(d.ApplyConfiguration) {
		c.blur()
		d.fail(errors.New("the desired child is nil; leave it out"))
		return d
	}
	if name := d.GetName(); name != nil {
		d.Name.Name = *name
	}
	kind, err := c.set.kindOf(d.ApplyConfiguration)
	if err != nil {
		c.blur()
		d.Kind, _ = kindName(d.ApplyConfiguration)
		d.fail(err)
		return d
	}
	d.kind, d.Kind = kind, kind.gvk()
	namespaced, err := kind.namespaced(ctx, c.set.client)
	switch {
	case meta.IsNoMatchError(err) && d.optional:
		// After may name it.
		d.Name, _ = keyOf(d.ApplyConfiguration, c.owner.GetNamespace(), true)
		d.State, d.Reason, d.done = Skipped, "its kind is not served", true
		return d
	case err == nil:
		d.Name, err = keyOf(d.ApplyConfiguration, c.owner.GetNamespace(), namespaced)
	}
	c.unclear[kind] = c.unclear[kind] || err != nil
	if err != nil {
		d.fail(err)
	}
	d.print, d.printed = fingerprint(c.set.seed, []any{d.ApplyConfiguration, d.keepDrift, reflect.ValueOf(d.ready).Pointer()})
	return d
}

// blur makes all kinds unclear.
func (c *call[O]) blur() {
	for _, k := range c.set.kinds {
		c.unclear[k] = true
	}
}

// findTwins refuses desired children of one name: it is unknown which of them is meant.
func (c *call[O]) findTwins() {
	type identity struct {
		kind Kind
		name types.NamespacedName
	}
	known := map[identity]*child{}
	for _, d := range c.all {
		if d.kind == nil || d.Name.Name == "" {
			continue
		}
		id := identity{d.kind, d.Name}
		if other := known[id]; other != nil {
			for _, twin := range []*child{other, d} {
				twin.fail(errors.New("it is desired twice in one call; give it once, with all of its fields"))
			}
		}
		known[id] = d
	}
}

// read reads the versions of the owned objects of a kind.
func (c *call[O]) read(ctx context.Context, k Kind) {
	versions, err := k.owned(ctx, c.owner.GetUID())
	if err == nil {
		byName := make(map[types.NamespacedName]cache.Version, len(versions))
		for _, v := range versions {
			byName[v.Name] = v
		}
		c.owned[k] = byName
		return
	}
	for _, d := range c.all {
		if d.kind != k || d.done {
			continue
		}
		if meta.IsNoMatchError(err) && d.optional {
			d.State, d.Reason, d.done = Skipped, "its kind is not served", true
		} else {
			d.fail(err)
		}
	}
	if !meta.IsNoMatchError(err) {
		c.pruned = append(c.pruned, Child{Kind: k.gvk(), State: Failed, Err: fmt.Errorf("finding those that are no longer desired: %w", err)})
	}
}

// apply applies the children in batches of 1, 2, 4 and so on, as Kubernetes' controllers do
// (slowStartBatch in pkg/controller/replicaset). After a failure it begins with 1 again.
func (c *call[O]) apply(ctx context.Context) {
	for size := 1; ; {
		batch := c.due(size)
		if len(batch) == 0 {
			break
		}
		if size *= 2; c.applyAll(ctx, batch) {
			size = 1
		}
	}
	for _, d := range c.all {
		if !d.done {
			d.State, d.done = Waiting, true
		}
	}
}

// due returns up to size children that need a request and wait for no other. It settles those that
// need none.
func (c *call[O]) due(size int) (batch []*child) {
	for again := true; again; {
		again = false
		for _, d := range c.all {
			if d.done || d.blocked() {
				continue
			}
			if c.unchanged(d) {
				again = true // others may be due now
			}
		}
	}
	for _, d := range c.all {
		if d.done || d.blocked() || len(batch) == size {
			continue
		}
		body, err := encoded(d.ApplyConfiguration) // here, because it may panic
		if err != nil {
			d.fail(err)
			continue
		}
		d.body, d.sum = body, sumOf(body)
		batch = append(batch, d)
	}
	return batch
}

// blocked reports whether a child waits for others, and sets the reason.
func (d *child) blocked() bool {
	for _, n := range d.needs {
		switch {
		case n.State == Skipped, n.done && n.Ready && n.Err == nil:
			continue
		case n.Reason != "":
			d.Reason = fmt.Sprintf("for %s %s: %s", n.Kind.Kind, n.Name.Name, n.Reason)
		default:
			d.Reason = fmt.Sprintf("for %s %s", n.Kind.Kind, n.Name.Name)
		}
		return true
	}
	d.Reason = ""
	return false
}

// unchanged settles a child whose version in the cache is known to be as desired.
func (c *call[O]) unchanged(d *child) bool {
	v, ok := c.owned[d.kind][d.Name]
	if !ok {
		return false
	}
	f, ok := c.known[v.UID]
	if !ok || !d.printed || f.version != v.ResourceVersion || f.print != d.print {
		return false
	}
	d.State, d.Ready, d.Reason, d.done = Unchanged, f.ready, f.reason, true
	return true
}

func (c *call[O]) applyAll(ctx context.Context, batch []*child) (failed bool) {
	var running sync.WaitGroup
	for _, d := range batch {
		running.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					d.panicked = fmt.Sprintf("applying %s: %v\n%s", d.title(), p, debug.Stack())
				}
			}()
			c.applyOne(ctx, d)
		})
	}
	running.Wait()
	for _, d := range batch { // here, because the controller recovers panics of this goroutine only
		if d.panicked != "" {
			panic(d.panicked)
		}
		c.settle(d)
		failed = failed || d.Err != nil
	}
	return failed
}

// result returns the rows, and remembers what the call found out.
func (c *call[O]) result() (r Result) {
	if len(c.learned) > 0 {
		for _, versions := range c.owned {
			for _, v := range versions {
				if f, ok := c.known[v.UID]; ok && c.learned[v.UID] == (finding{}) {
					c.learned[v.UID] = f
				}
			}
		}
		c.set.known.Add(c.owner.GetUID(), c.learned, knownFor)
	}
	for _, d := range c.all {
		r.Children = append(r.Children, d.Child)
	}
	r.Children = append(r.Children, c.pruned...)
	return r
}
