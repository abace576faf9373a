// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Result is what [CreateOrUpdate] and [CreateOrPatch] did with an object.
type Result string

const (
	// Unchanged: no request was needed, or the API server stored no new version.
	Unchanged Result = "unchanged"
	// Created: the object did not exist.
	Created Result = "created"
	// Updated: the object existed and has a new version.
	Updated Result = "updated"
)

// CreateOrUpdate changes an object with mutate and updates it, or creates it if it does not exist.
// mutate gets a copy of
//
//   - obj, if obj was read, for example from a cache. If mutate changes nothing, nothing is sent.
//   - the live object, if obj has no resourceVersion.
//   - obj, if obj has no resourceVersion and the object does not exist.
//   - an empty object with the name of obj, if obj was read and the object no longer exists.
//
// The update has the resourceVersion of the object that mutate got, so no other client's change is
// lost. After a conflict, or if another client creates or deletes the object at the same time,
// mutate gets the live object. After 5 tries the last error is returned. mutate may change neither
// the name nor the namespace. An error of mutate is returned as it is, and nothing is sent.
//
// Objects are compared with equality.Semantic.DeepEqual. An update does not change the status of a
// kind with a status subresource. It removes the fields that T does not have, and those that a
// cache's Transform removed. [CreateOrPatch] writes the status and keeps these fields.
func CreateOrUpdate[T Object](ctx context.Context, w ReadWriter[T], obj T, mutate func(T) error, options ...Option) (T, Result, error) {
	m := &mutation[T]{name: "client.CreateOrUpdate", writer: w, mutate: mutate}
	m.create = func(obj T) (T, error) { return w.Create(ctx, obj, options...) }
	m.change = func(_, after T) (T, error) { return w.Update(ctx, after, withoutTrace(options)...) }
	return m.run(ctx, obj)
}

// CreateOrPatch is [CreateOrUpdate] with [PatchFrom] for the fields that mutate changed, and with
// the status. Two clients that change different fields do not conflict, but a change of the same
// field may be lost unless you give [OptimisticLock].
//
// A second request writes the status, also after a create. If it fails, the next call writes it.
func CreateOrPatch[T Object](ctx context.Context, w ReadWriter[T], obj T, mutate func(T) error, options ...Option) (T, Result, error) {
	m := &mutation[T]{name: "client.CreateOrPatch", writer: w, mutate: mutate}
	m.create = func(obj T) (T, error) {
		return createWithStatus(ctx, w, obj, slices.DeleteFunc(slices.Clone(options), isOptimisticLock))
	}
	m.change = func(before, after T) (T, error) { return PatchFrom(ctx, w, before, after, withoutTrace(options)...) }
	return m.run(ctx, obj)
}

func createWithStatus[T Object](ctx context.Context, w Writer[T], obj T, options []Option) (T, error) {
	stored, err := w.Create(ctx, obj, options...)
	if err != nil || stored.GetResourceVersion() == "" { // a dry run
		return stored, err
	}
	d, err := compare(newObject[T](), obj)
	if err != nil || len(d.status) == 0 {
		return stored, err
	}
	var version string
	if d.replaces != "" { // another client may have written the status already
		version = stored.GetResourceVersion()
	}
	data, err := d.data(d.status, stored, version)
	if err != nil {
		return *new(T), err
	}
	return patchStatus(ctx, w, ObjectKeyFromObject(stored), d.patchType, data, withoutTrace(options))
}

const conflictTries = 5

type mutation[T Object] struct {
	name   string // of the function, for errors
	writer Reader[T]
	mutate func(T) error
	create func(T) (T, error)
	change func(before, after T) (T, error)
}

func (m *mutation[T]) run(ctx context.Context, obj T) (T, Result, error) {
	switch {
	case argument.IsNil(obj):
		return *new(T), Unchanged, fmt.Errorf("%s: the object is nil; give one with a name", m.name)
	case obj.GetName() == "":
		return *new(T), Unchanged, fmt.Errorf("%s %s: the name is empty", m.name, describe(obj))
	case m.mutate == nil:
		return *new(T), Unchanged, fmt.Errorf("%s %s: mutate is nil", m.name, describe(obj))
	}
	absent, from := obj, obj
	if obj.GetResourceVersion() != "" {
		absent = named(obj)
	}
	for try := 1; ; try++ {
		if from.GetResourceVersion() == "" {
			live, err := m.writer.GetLive(ctx, ObjectKeyFromObject(obj))
			if err == nil {
				from = live
			} else if !apierrors.IsNotFound(err) {
				return *new(T), Unchanged, err
			}
		}
		stored, result, err := m.step(from)
		var failed *mutateError
		switch {
		case errors.As(err, &failed):
			return *new(T), Unchanged, failed.error
		case err == nil:
			return stored, result, nil
		case try == conflictTries || !raced(err, from):
			return *new(T), Unchanged, err
		}
		from = absent
	}
}

func named[T Object](obj T) T {
	empty := newObject[T]()
	empty.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	empty.SetNamespace(obj.GetNamespace())
	empty.SetName(obj.GetName())
	return empty
}

// raced reports whether a write failed because another client wrote the object since it was read.
// An object in deletion that is gone is not created again: the write itself may have removed its
// last finalizer.
func raced(err error, from Object) bool {
	gone := apierrors.IsNotFound(err) && from.GetResourceVersion() != "" && from.GetDeletionTimestamp() == nil
	return gone || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

type mutateError struct{ error }

// step is one try. from has a resourceVersion unless the object does not exist.
func (m *mutation[T]) step(from T) (T, Result, error) {
	after, _ := from.DeepCopyObject().(T)
	if err := m.mutate(after); err != nil {
		return *new(T), Unchanged, &mutateError{err}
	}
	if was, is := ObjectKeyFromObject(from), ObjectKeyFromObject(after); was != is {
		return *new(T), Unchanged, &mutateError{fmt.Errorf("%s %s: mutate changed the name to %s; write another object with another call", m.name, describe(from), is)}
	}
	keepIdentity(from, after)
	if from.GetResourceVersion() == "" {
		stored, err := m.create(after)
		return stored, Created, err
	}
	if equality.Semantic.DeepEqual(from, after) {
		return after, Unchanged, nil
	}
	stored, err := m.change(from, after)
	if err != nil {
		return stored, Unchanged, err
	}
	return stored, resultOf(from, stored), nil
}

// keepIdentity restores what the API server sets, and the trace: mutate may have assigned a whole
// object, and a write without a resourceVersion would overwrite others' changes.
func keepIdentity(from, after Object) {
	after.SetUID(from.GetUID())
	after.SetResourceVersion(from.GetResourceVersion())
	after.SetGeneration(from.GetGeneration())
	after.SetCreationTimestamp(from.GetCreationTimestamp())
	after.SetDeletionTimestamp(from.GetDeletionTimestamp())
	if managed := from.GetManagedFields(); len(after.GetManagedFields()) == 0 && len(managed) > 0 {
		after.SetManagedFields(managed)
	}
	if trace, lost := lostTrace(from, after); lost {
		setTrace(after, trace)
	}
}

// resultOf distinguishes an update from a no-op, which makes no version. A dry run makes none
// either, but its response differs from the object.
func resultOf[T Object](from, stored T) Result {
	if from.GetResourceVersion() == stored.GetResourceVersion() {
		if d, err := compare(from, stored); err == nil && len(d.main)+len(d.status) == 0 {
			return Unchanged
		}
	}
	return Updated
}
