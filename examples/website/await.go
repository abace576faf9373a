// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
)

// patience bounds the wait for each part. Your cluster may have to pull an image first, and a
// loaded machine is slow.
const patience = 5 * time.Minute

// await watches one object until check returns nil. While the object does not exist, found is
// false.
func await[T client.Object](ctx context.Context, h *cache.Handle[T], key types.NamespacedName, check func(obj T, found bool) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	changed := make(chan struct{}, 1)
	wake := func(any) {
		select {
		case changed <- struct{}{}:
		default: // a wake-up is pending
		}
	}
	events, err := h.Subscribe(toolscache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, _ any) { wake(nil) }, DeleteFunc: wake,
	})
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		obj, err := h.Get(ctx, key)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		missing := check(obj, err == nil)
		if missing == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("the %s %s is not as expected: %w; see the operator's log with -v", h.GroupVersionKind().Kind, key, missing)
		}
	}
}
