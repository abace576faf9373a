// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Prune deletes those of the objects that owner controls (metav1.IsControlledBy) and that keep does not want, and returns what
// it has deleted. Objects that owner does not control, and those that are being deleted already, are left alone, so that
// objects may be whatever a list returned, of a cache or live. Each is deleted with its UID as precondition, in the background
// unless options say otherwise; one that is gone, or whose name has passed to another object, is no error and is not returned.
// What could not be deleted does not keep it from the others: the errors are joined, and each names its object. It stops when
// ctx ends.
func (h *Handle[T]) Prune(ctx context.Context, owner metav1.Object, objects []T, keep func(T) bool, options ...Option) (deleted []T, err error) {
	switch {
	case h.err != nil:
		return nil, h.err
	case argument.IsNil(owner) || owner.GetUID() == "":
		return nil, fmt.Errorf("prune %s: the owner is nil, or has no UID; give one that was read", h.gvk.Kind)
	case keep == nil:
		return nil, fmt.Errorf("prune %s: keep is nil; to keep none, give a func that says so", h.gvk.Kind)
	}
	if _, err := h.call(deleting, "prune", options); err != nil {
		return nil, err
	}
	var failed []error
	for _, obj := range objects {
		if argument.IsNil(obj) || !metav1.IsControlledBy(obj, owner) || obj.GetDeletionTimestamp() != nil || keep(obj) {
			continue
		}
		if ctx.Err() != nil {
			return deleted, errors.Join(append(failed, fmt.Errorf("prune %s: %w", h.gvk.Kind, context.Cause(ctx)))...)
		}
		exactly := append([]Option{}, options...)
		err := h.Delete(ctx, keyOf(obj), append(exactly, Preconditions(obj.GetUID(), ""))...)
		switch {
		case err == nil:
			deleted = append(deleted, obj)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			failed = append(failed, fmt.Errorf("prune %s %s: %w", h.gvk.Kind, keyOf(obj), err))
		}
	}
	return deleted, errors.Join(failed...)
}
