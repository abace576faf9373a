// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// call is one call of Reconcile or Delete.
type call[O client.Object] struct {
	set   *Set[O]
	owner O
	all   []*child
	// desired has all children by identity.
	desired map[identity]*child
	// owned has the owner's objects in the caches. Kinds that could not be read are in unread.
	owned  []version
	unread map[Kind]error
	// unclear are kinds that may have a desired child whose name is unknown. They are not pruned.
	// If the kind is unknown, too, nil is among them.
	unclear map[Kind]bool
	known   findings
	learned bool // some child has a new finding
	pruned  []Child
}

type version struct {
	cache.Version

	kind Kind
}

// child is a desired child.
type child struct {
	desired
	Child

	cached   cache.Version // of the object in the cache, or empty
	print    uint64        // of the desired fields and of the options
	printed  bool
	sum      string   // of its JSON
	needs    []*child // those before it
	uid      types.UID
	finding  finding // of this uid
	panicked error
	done     bool
}

// identity must be unique: otherwise it is unknown which child is meant.
type identity struct {
	kind Kind
	name types.NamespacedName
}

func (d *child) identity() identity { return identity{d.kind, d.Name} }

func (d *child) isKnown() bool { return d.kind != nil && d.Name.Name != "" }

func (d *child) fail(err error) { d.State, d.Err, d.done = Failed, err, true }

func (d *child) skip() {
	d.State, d.Reason, d.Err, d.done = Skipped, "its kind is not served", nil, true
}

// Reconcile applies the desired children of an owner that differ, in their order, and deletes those
// that are no longer desired. The error joins the errors of all children. owner must have been
// read, and not be in deletion: then call Delete. See the package doc.
func (s *Set[O]) Reconcile(ctx context.Context, owner O, desired ...client.ApplyConfiguration) (Result, error) {
	if !argument.IsNil(owner) && owner.GetDeletionTimestamp() != nil {
		return Result{}, fmt.Errorf("children: %s is being deleted; call Delete in a finalizer step, or do nothing", object.Name(object.Key(owner)))
	}
	c, err := s.begin(ctx, owner, desired)
	if err != nil {
		return Result{}, err
	}
	if err := c.labelOwner(ctx); err != nil {
		return Result{}, err
	}
	c.apply(ctx)
	c.prune(ctx)
	result := c.result(ctx)
	return result, result.err()
}

func (s *Set[O]) begin(ctx context.Context, owner O, desired []client.ApplyConfiguration) (*call[O], error) {
	if argument.IsNil(owner) || owner.GetUID() == "" || owner.GetName() == "" {
		return nil, errors.New("children: the owner is nil, or has no UID; give an object that was read")
	}
	c := &call[O]{
		set: s, owner: owner, all: make([]*child, len(desired)), desired: make(map[identity]*child, len(desired)),
		unread: map[Kind]error{}, unclear: map[Kind]bool{},
	}
	known, _ := s.known.Get(owner.GetUID())
	c.known, _ = known.(findings)
	for _, k := range s.kinds {
		c.read(ctx, k)
	}
	all := make([]child, len(desired)) // at once
	for i, config := range desired {
		d := &all[i]
		d.desired, c.all[i] = desiredOf(config), d
		c.resolve(ctx, d)
		if twin := c.desired[d.identity()]; twin != nil && d.isKnown() {
			twice := errors.New("it is desired twice in one call; give it once, with all of its fields")
			twin.fail(twice)
			d.fail(twice)
		}
		c.desired[d.identity()] = d
	}
	for _, v := range c.owned {
		if d := c.desired[identity{v.kind, v.Name}]; d != nil {
			d.cached = v.Version
		}
	}
	c.order(ctx)
	return c, nil
}

// read reads the versions of the owned objects of a kind.
func (c *call[O]) read(ctx context.Context, k Kind) {
	versions, err := k.OwnedVersions(ctx, c.owner.GetUID(), cache.ListOptions{})
	if errors.As(err, new(*consistency.UndeclaredError)) {
		err = fmt.Errorf("%w; or rather call Set.Watch with the controller, so that changes of children make their owner due", err)
	}
	if err != nil {
		c.unread[k] = err
		if !meta.IsNoMatchError(err) {
			c.pruned = append(c.pruned, Child{Kind: k.GroupVersionKind(), State: Failed, Err: fmt.Errorf("finding those that are no longer desired: %w", err)})
		}
		return
	}
	for _, v := range versions {
		c.owned = append(c.owned, version{v, k})
	}
}

// resolve finds out a desired child's kind, name and content.
func (c *call[O]) resolve(ctx context.Context, d *child) {
	err := c.identify(ctx, d)
	switch {
	case meta.IsNoMatchError(err) && d.optional:
		d.skip()
	case err != nil:
		c.unclear[d.kind] = true
		d.fail(err)
	default:
		d.print, d.printed = fingerprint(c.set.seed, d.ApplyConfiguration, d.keepDrift, reflect.ValueOf(d.ready).Pointer())
	}
}

// identify sets a child's kind and name, as far as they are known: After may name it.
func (c *call[O]) identify(ctx context.Context, d *child) (err error) {
	if argument.IsNil(d.ApplyConfiguration) {
		return errors.New("the desired child is nil; leave it out")
	}
	if name := d.GetName(); name != nil {
		d.Name.Name = *name
	}
	if d.kind, err = c.set.kindOf(d.ApplyConfiguration); err != nil {
		d.Kind = kindName(d.ApplyConfiguration)
		return err
	}
	d.Kind = d.kind.GroupVersionKind()
	namespaced, err := true, c.unread[d.kind]
	if err == nil {
		namespaced, err = d.kind.Namespaced()
	}
	var wrong error
	if d.Name, wrong = keyOf(d.ApplyConfiguration, c.owner.GetNamespace(), namespaced); err != nil {
		return err
	}
	return wrong
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
			d.wait()
		}
	}
}

// due returns up to size children that need a request and wait for no other. It settles those that
// need none.
func (c *call[O]) due(size int) (batch []*child) {
	for settled := true; settled && batch == nil; { // then others may be due
		settled = false
		for _, d := range c.all {
			switch {
			case d.done || d.blocker() != nil:
			case c.unchanged(d):
				settled = true
			case len(batch) < size:
				batch = append(batch, d)
			}
		}
	}
	return batch
}

// blocker returns the first child that this one waits for, or nil.
func (d *child) blocker() *child {
	for _, n := range d.needs {
		if n.State != Skipped && (!n.done || !n.Ready || n.Err != nil) {
			return n
		}
	}
	return nil
}

// wait settles a child that waits for another one.
func (d *child) wait() {
	n := d.blocker()
	if !n.done {
		n.wait()
	}
	d.State, d.Reason, d.done = Waiting, strings.TrimSuffix("for "+n.short()+": "+n.Reason, ": "), true
}

// unchanged settles a child whose version in the cache is known to be as desired.
func (c *call[O]) unchanged(d *child) bool {
	if d.cached.UID == "" || !d.printed {
		return false
	}
	f, ok := c.known[d.cached.UID]
	if !ok || f.version != d.cached.ResourceVersion || f.print != d.print {
		return false
	}
	d.State, d.Ready, d.Reason, d.done = Unchanged, f.ready, f.reason, true
	d.uid, d.finding = d.cached.UID, f
	return true
}

func (c *call[O]) applyAll(ctx context.Context, batch []*child) (failed bool) {
	var running sync.WaitGroup
	for _, d := range batch {
		running.Go(func() {
			defer run.Recover(&d.panicked)
			if err := c.applyOne(ctx, d); err != nil {
				d.fail(err)
			}
		})
	}
	running.Wait()
	for _, d := range batch { // here, because the controller recovers panics of this goroutine only
		if d.panicked != nil {
			panic(fmt.Sprintf("applying %s: %v", d.title(), d.panicked))
		}
		c.settle(d)
		failed = failed || d.Err != nil
	}
	return failed
}

// result returns the rows, leaves a note to package why, and remembers what the call found out.
func (c *call[O]) result(ctx context.Context) (r Result) {
	if c.learned {
		known := findings{}
		for _, d := range c.all {
			known[d.uid] = d.finding
		}
		c.set.known.Add(c.owner.GetUID(), known, 24*time.Hour)
	}
	r.Children = make([]Child, 0, len(c.all)+len(c.pruned))
	for _, d := range c.all {
		r.Children = append(r.Children, d.Child)
	}
	r.Children = append(r.Children, c.pruned...)
	r.note(ctx)
	return r
}
