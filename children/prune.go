// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// prune deletes the children that are not desired, and returns how many were left. It skips unclear
// kinds.
func (c *call[O]) prune(ctx context.Context) (left int) {
	var all []version
	for _, v := range c.owned {
		if c.desired[identity{v.kind, v.Name}] == nil && !c.unclear[v.kind] && !c.unclear[nil] {
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, func(a, b version) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	for _, v := range all {
		if c.pruneOne(ctx, v.kind, v.Name) {
			left++
		}
	}
	return left
}

// pruneOne deletes an object if it is a child that Reconcile has applied for the owner, and reports
// whether it was one.
func (c *call[O]) pruneOne(ctx context.Context, k Kind, name types.NamespacedName) bool {
	obj, err := k.get(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return false
	case err != nil:
	case !metav1.IsControlledBy(obj, c.owner), obj.GetAnnotations()[AppliedAnnotation] == "":
		return false
	case obj.GetDeletionTimestamp() != nil:
		return true
	default:
		err = k.remove(ctx, c.set.client, obj)
	}
	row := Child{Kind: k.GroupVersionKind(), Name: name, State: Pruned, Reason: "it is no longer desired"}
	if err != nil {
		row.State, row.Err = Failed, fmt.Errorf("deleting it, because it is no longer desired: %w", err)
	}
	c.pruned = append(c.pruned, row)
	return true
}

// Delete deletes the children of an owner that is being deleted, in the reverse of their order:
// first those that are not in desired, then each one once those after it are gone. It returns an
// error for which finalizer.IsWaiting is true until all are gone, so it can be a finalizer's step.
// An owner whose children need no order does not need it: the garbage collector deletes them.
func (s *Set[O]) Delete(ctx context.Context, owner O, desired ...client.ApplyConfiguration) (Result, error) {
	c, err := s.begin(ctx, owner, desired)
	if err != nil {
		return Result{}, err
	}
	c.unclear = nil       // all go
	left := len(c.pruned) // kinds that could not be read
	left += c.prune(ctx)
	for _, d := range c.all {
		c.findLeft(ctx, d)
	}
	for _, d := range c.all {
		c.deleteOne(ctx, d, left > 0)
	}
	result := c.result(ctx)
	if err := result.err(); err != nil {
		return result, err
	}
	if left += len(result.unready()); left > 0 {
		return result, finalizer.Waiting(fmt.Sprintf("the deletion of the children of %s is not complete; left: %d", object.Name(object.Key(owner)), left))
	}
	return result, nil
}

// findLeft finds out whether a desired child is left. The annotation does not matter: Reconcile
// applies a child without it, too.
func (c *call[O]) findLeft(ctx context.Context, d *child) {
	if meta.IsNoMatchError(d.Err) { // no Optional needed: nothing can be left
		d.skip()
	}
	if d.State == Skipped || d.kind == nil || c.unread[d.kind] != nil {
		return
	}
	d.State, d.Err = Gone, nil // whether it could be applied does not matter
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

// deleteOne deletes a desired child if none after it is left, and no child that is not desired.
func (c *call[O]) deleteOne(ctx context.Context, d *child, others bool) {
	if d.live == nil {
		return
	}
	after := slices.IndexFunc(c.all, func(other *child) bool {
		left := other.live != nil || other.kind != nil && other.Err != nil // it may be
		return left && other.follows(d)
	})
	if d.live.GetDeletionTimestamp() != nil {
		d.State, d.Reason = Waiting, "for the end of its deletion"
	} else if others {
		d.State, d.Reason = Waiting, "for the deletion of others that are not desired"
	} else if after >= 0 {
		d.State, d.Reason = Waiting, "for the deletion of "+c.all[after].short()
	} else if err := d.kind.remove(ctx, c.set.client, d.live); err != nil {
		d.fail(err)
	} else {
		d.State, d.Reason = Deleted, "its owner is being deleted"
	}
}
