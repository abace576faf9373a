// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// finalizerTries is how often a finalizer is written while others write to the object.
const finalizerTries = 5

// EnsureFinalizer sees to it that the object has the finalizer, such as "example.com/cleanup", and returns the object as
// stored. If obj has it, nothing is sent and obj is returned. Otherwise the write names the UID and the resourceVersion of obj,
// so that it never takes away what somebody else has put there; if that is an old version, the object is read live, and it
// is tried again, 5 times in all. An object that is being deleted, which can take no finalizer any more, is an error, and so is
// one that is gone or has a successor of the same name: IsNotFound and IsConflict.
func (h *Handle[T]) EnsureFinalizer(ctx context.Context, obj T, finalizer string, options ...Option) (T, error) {
	stored, err := h.finalizers(ctx, "add the finalizer to", obj, finalizer, options, func(live T) ([]string, error) {
		has := live.GetFinalizers()
		if slices.Contains(has, finalizer) {
			return has, nil
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("add the finalizer %s to %s %s: the object is being deleted, it is too late for that", finalizer, h.gvk.Kind, keyOf(live))
		}
		return append(slices.Clone(has), finalizer), nil
	})
	if err != nil {
		return *new(T), err
	}
	return stored, nil
}

// RemoveFinalizer sees to it that the object does not have the finalizer, and returns the object as stored. If obj does not have
// it, nothing is sent and obj is returned. It writes as EnsureFinalizer does. An object that is gone, or has a successor of the
// same name, has no finalizer: the result is obj, without an error.
func (h *Handle[T]) RemoveFinalizer(ctx context.Context, obj T, finalizer string, options ...Option) (T, error) {
	stored, err := h.finalizers(ctx, "remove the finalizer from", obj, finalizer, options, func(live T) ([]string, error) {
		return slices.DeleteFunc(slices.Clone(live.GetFinalizers()), func(f string) bool { return f == finalizer }), nil
	})
	if apierrors.IsNotFound(err) || isSuccessor(err) {
		return obj, nil
	}
	if err != nil {
		return *new(T), err
	}
	return stored, nil
}

// finalizers brings the finalizers of an object to what want says of it.
func (h *Handle[T]) finalizers(ctx context.Context, what string, obj T, finalizer string, options []Option, want func(T) ([]string, error)) (T, error) {
	if _, err := h.of(ctx, what, obj); err != nil {
		return *new(T), err
	}
	if err := checkFinalizer(finalizer); err != nil {
		return *new(T), fmt.Errorf("%s %s: %w", what, h.gvk.Kind, err)
	}
	key, uid := keyOf(obj), obj.GetUID()
	if uid == "" || obj.GetResourceVersion() == "" {
		return *new(T), fmt.Errorf("%s %s %s: the object has no UID or no resourceVersion; give one that was read", what, h.gvk.Kind, key)
	}
	for try := 1; ; try++ {
		finalizers, err := want(obj)
		if err != nil || slices.Equal(finalizers, obj.GetFinalizers()) {
			return obj, err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": uid, "resourceVersion": obj.GetResourceVersion(), "finalizers": finalizers,
		}})
		if err != nil {
			return *new(T), err
		}
		stored, err := h.Patch(ctx, key, types.MergePatchType, patch, options...)
		if !apierrors.IsConflict(err) || try == finalizerTries {
			return stored, err
		}
		if obj, err = h.GetLive(ctx, key); err != nil {
			return *new(T), err
		}
		if obj.GetUID() != uid {
			return *new(T), h.successor(key, uid, obj.GetUID())
		}
	}
}

// checkFinalizer says what the API server would refuse, or warn of.
func checkFinalizer(name string) error {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 || !strings.Contains(name, "/") {
		return fmt.Errorf("the finalizer is %q; give a domain and a name, such as example.com/cleanup", name)
	}
	return nil
}

// successorError is a conflict: the name has passed to another object.
type successorError struct{ *apierrors.StatusError }

func (h *Handle[T]) successor(key types.NamespacedName, was, is types.UID) error {
	m := h.gvk.GroupVersion().WithResource(h.gvk.Kind).GroupResource()
	return &successorError{apierrors.NewConflict(m, key.String(), fmt.Errorf("it was deleted and created anew: the UID is %s, not %s", is, was))}
}

func isSuccessor(err error) bool {
	var s *successorError
	return errors.As(err, &s)
}
