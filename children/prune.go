// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// prune deletes what is no longer desired.
func (c *call[O]) prune(ctx context.Context) {
	for _, k := range c.set.kinds {
		if c.unclear[k] {
			continue
		}
		for _, name := range c.undesired(k) {
			c.pruneOne(ctx, k, name)
		}
	}
}

// undesired returns the names of the owned objects of a kind that are not desired.
func (c *call[O]) undesired(k Kind) (names []types.NamespacedName) {
	for name := range c.owned[k] {
		if !slices.ContainsFunc(c.all, func(d *child) bool { return d.kind == k && d.Name == name }) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return names
}

// pruneOne deletes an object if it is a child, and reports whether one was left.
func (c *call[O]) pruneOne(ctx context.Context, k Kind, name types.NamespacedName) (left bool) {
	obj, err := k.get(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && !c.made(obj) {
		return false
	}
	if err == nil && obj.GetDeletionTimestamp() != nil {
		return true
	}
	if err == nil {
		err = c.set.remove(ctx, k, obj)
	}
	row := Child{Kind: k.gvk(), Name: name, State: Pruned, Reason: "it is no longer desired"}
	if err != nil {
		row.State, row.Err = Failed, fmt.Errorf("deleting it, because it is no longer desired: %w", err)
	}
	c.pruned = append(c.pruned, row)
	return true
}

// made reports whether an object is a child that Reconcile has applied for the owner.
func (c *call[O]) made(obj client.Object) bool {
	return metav1.IsControlledBy(obj, c.owner) && obj.GetAnnotations()[AppliedAnnotation] != ""
}

// remove deletes an object. It may be gone.
func (s *Set[O]) remove(ctx context.Context, k Kind, obj client.Object) error {
	return client.IgnoreNotFound(k.remove(ctx, s.client, obj))
}

// Delete deletes the children of an owner that is being deleted, in the reverse of their order:
// first those that are not in desired, then each one once those after it are gone. It returns an
// error for which finalizer.IsWaiting is true until all are gone, so it can be a finalizer's step.
// An owner whose children need no order does not need it: the garbage collector deletes them.
func (s *Set[O]) Delete(ctx context.Context, owner O, desired ...client.ApplyConfiguration) (Result, error) {
	if err := s.check(owner); err != nil {
		return Result{}, err
	}
	c := s.begin(ctx, owner, desired)
	left := c.deleteOthers(ctx)
	if left == 0 {
		for _, d := range c.all {
			c.findLeft(ctx, d)
		}
		for _, d := range c.all {
			c.deleteOne(ctx, d)
		}
	}
	result := c.result()
	if err := result.err(); err != nil {
		return result, err
	}
	for _, d := range c.all {
		if d.State == Deleted || d.State == Waiting {
			left++
		}
	}
	if left > 0 {
		what := "1 child of %s is not deleted yet"
		if left > 1 {
			what = strconv.Itoa(left) + " children of %s are not deleted yet"
		}
		return result, finalizer.Waiting(fmt.Sprintf(what, object.Name(object.Key(owner))))
	}
	return result, nil
}

// deleteOthers deletes the children that are not in the desired state, and returns how many are
// left or could not be read.
func (c *call[O]) deleteOthers(ctx context.Context) (left int) {
	left = len(c.pruned) // kinds that could not be read
	for _, k := range c.set.kinds {
		for _, name := range c.undesired(k) {
			if c.pruneOne(ctx, k, name) {
				left++
			}
		}
	}
	return left
}

// findLeft finds out whether a desired child is left. The annotation does not matter: Reconcile
// applies a child without it, too.
func (c *call[O]) findLeft(ctx context.Context, d *child) {
	if meta.IsNoMatchError(d.Err) { // no Optional needed: nothing can be left
		d.State, d.Reason, d.Err = Skipped, "its kind is not served", nil
	}
	if d.kind == nil || d.State == Skipped || c.owned[d.kind] == nil {
		return
	}
	d.State, d.Err = Gone, nil // whether it could be applied does not matter
	if _, there := c.owned[d.kind][d.Name]; !there {
		return
	}
	obj, err := d.kind.get(ctx, d.Name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		d.fail(err)
	case !metav1.IsControlledBy(obj, c.owner):
		d.Reason = "it " + controllerOf(obj, c.owner)
	default:
		d.live = obj
	}
}

// deleteOne deletes a desired child if none after it is left.
func (c *call[O]) deleteOne(ctx context.Context, d *child) {
	if d.live == nil {
		return
	}
	if d.live.GetDeletionTimestamp() != nil {
		d.State, d.Reason = Waiting, "for the end of its deletion"
	} else if other := d.dependentLeft(map[*child]bool{}); other != nil {
		d.State, d.Reason = Waiting, fmt.Sprintf("for the deletion of %s %s", other.Kind.Kind, other.Name.Name)
	} else if err := c.set.remove(ctx, d.kind, d.live); err != nil {
		d.fail(err)
	} else {
		d.State, d.Reason = Deleted, "its owner is being deleted"
	}
}

// dependentLeft returns a child that is left, or may be, and comes after this one. Those between
// may be gone.
func (d *child) dependentLeft(visited map[*child]bool) *child {
	for _, other := range d.dependents {
		if visited[other] {
			continue
		}
		visited[other] = true
		if other.live != nil || other.kind != nil && other.Err != nil {
			return other
		}
		if left := other.dependentLeft(visited); left != nil {
			return left
		}
	}
	return nil
}
