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

// Prune deletes those objects that owner controls (metav1.IsControlledBy) and keep does not want. It
// returns the deleted ones. Other objects, and those that are being deleted, are left alone, so that
// objects may be any list, cached or live.
//
// Each delete has the UID as precondition. An object that is gone, or was replaced by another of the
// same name, is no error and is not returned. Failures are joined, each names its object, and the
// others are still deleted. Prune stops when ctx ends.
func (h *Handle[T]) Prune(ctx context.Context, owner metav1.Object, objects []T, keep func(T) bool, options ...Option) (deleted []T, err error) {
	switch {
	case h.err != nil:
		return nil, h.err
	case argument.IsNil(owner) || owner.GetUID() == "":
		return nil, fmt.Errorf("prune %s: the owner is nil, or has no UID; give one that was read", h.gvk.Kind)
	case keep == nil:
		return nil, fmt.Errorf("prune %s: keep is nil; to keep none, give a func that says so", h.gvk.Kind)
	}
	if _, err := h.call(deleting, options); err != nil {
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
