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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// EnsureFinalizer adds a finalizer, such as "example.com/cleanup", to obj, which must have been
// read. If obj has it, nothing is sent and obj is returned.
//
// The write has obj's UID and resourceVersion, so it removes no other finalizer. After a conflict,
// the live object is read and written, up to 5 times. An object that is being deleted is an error.
// So is one that is gone (IsNotFound), or was replaced by another with the same name (IsConflict).
func (h *Handle[T]) EnsureFinalizer(ctx context.Context, obj T, finalizer string, options ...Option) (T, error) {
	return h.finalizers(ctx, "add the finalizer to", obj, finalizer, options, func(live T) ([]string, error) {
		has := live.GetFinalizers()
		if slices.Contains(has, finalizer) {
			return has, nil
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("add the finalizer %s to %s %s: the object is being deleted, and takes no new finalizers", finalizer, h.target.gvk.Kind, ObjectKeyFromObject(live))
		}
		return append(slices.Clone(has), finalizer), nil
	})
}

// RemoveFinalizer removes a finalizer, with the retries of EnsureFinalizer. If obj does not have
// it, nothing is sent. In this case, or if the object is gone or was replaced, RemoveFinalizer
// returns obj and no error.
func (h *Handle[T]) RemoveFinalizer(ctx context.Context, obj T, finalizer string, options ...Option) (T, error) {
	stored, err := h.finalizers(ctx, "remove the finalizer from", obj, finalizer, options, func(live T) ([]string, error) {
		return slices.DeleteFunc(slices.Clone(live.GetFinalizers()), func(f string) bool { return f == finalizer }), nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, errReplaced) {
		return obj, nil
	}
	return stored, err
}

var errReplaced = errors.New("the object was deleted and created again")

func replaced(kind schema.GroupKind, key types.NamespacedName, why error) error {
	conflict := apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.String(), why)
	return fmt.Errorf("%w: %w", errReplaced, conflict)
}

func (h *Handle[T]) finalizers(ctx context.Context, what verb, obj T, finalizer string, options []Option, want func(T) ([]string, error)) (T, error) {
	if err := h.target.check(what, obj); err != nil {
		return *new(T), err
	}
	key, uid := ObjectKeyFromObject(obj), obj.GetUID()
	if problems := validation.IsQualifiedName(finalizer); len(problems) > 0 || !strings.Contains(finalizer, "/") {
		return *new(T), fmt.Errorf("%s: the finalizer is %q; give a domain and a name, such as example.com/cleanup", h.target.doing(what, key), finalizer)
	}
	if uid == "" || obj.GetResourceVersion() == "" {
		return *new(T), fmt.Errorf("%s: the object has no UID or no resourceVersion; give one that was read", h.target.doing(what, key))
	}
	for try := 1; ; try++ {
		finalizers, err := want(obj)
		if err != nil {
			return *new(T), err
		}
		if slices.Equal(finalizers, obj.GetFinalizers()) {
			return obj, nil
		}
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": uid, "resourceVersion": obj.GetResourceVersion(), "finalizers": finalizers,
		}})
		if err != nil {
			return *new(T), err
		}
		stored, err := h.Patch(ctx, key, types.MergePatchType, data, options...)
		if !apierrors.IsConflict(err) || try == conflictTries {
			return stored, err
		}
		if obj, err = h.GetLive(ctx, key); err != nil {
			return *new(T), err
		}
		if obj.GetUID() != uid {
			return *new(T), replaced(h.target.gvk.GroupKind(), key, fmt.Errorf("the UID is %s, not %s", obj.GetUID(), uid))
		}
	}
}
