// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"context"
	"errors"
	"slices"
)

// Map makes due what f says of the object. Of an update both states are mapped, so that a reference that was dropped still
// makes its former target due; a key that both name is due once.
func Map[T Object, K comparable](f func(ctx context.Context, obj T) ([]K, error)) Handler[K] {
	return mapper[T, K](f)
}

type mapper[T Object, K comparable] func(ctx context.Context, obj T) ([]K, error)

func (m mapper[T, K]) Keys(ctx context.Context, e Event) ([]K, error) {
	var keys []K
	for _, obj := range e.states() {
		t, err := as[T](obj)
		if err != nil {
			return nil, err
		}
		more, err := m(ctx, t)
		if err != nil {
			return nil, err
		}
		keys = union(keys, more)
	}
	return keys, nil
}

func (m mapper[T, K]) CheckType(example Object) error {
	if m == nil {
		return errors.New("handler.Map was given no function")
	}
	_, err := as[T](example)
	return err
}

// few is up to how many keys are compared one by one.
const few = 16

// union returns the keys of both, each once. It leaves b, which is the caller's, alone.
func union[K comparable](a, b []K) []K {
	if len(a)+len(b) <= few {
		for _, k := range b {
			if !slices.Contains(a, k) {
				a = append(a, k)
			}
		}
		return a
	}
	seen := make(map[K]struct{}, len(a)+len(b))
	for _, k := range a {
		seen[k] = struct{}{}
	}
	for _, k := range b {
		if _, ok := seen[k]; !ok {
			seen[k] = struct{}{}
			a = append(a, k)
		}
	}
	return a
}
