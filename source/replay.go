// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
)

func keepOnly[K comparable](wanted func(K) bool) keep {
	return func(key any) bool { return wanted(key.(K)) } //nolint:forcetypeassert // see keep
}

type request struct {
	wanted keep
	done   chan error
}

func (f *feed[K]) replay(ctx context.Context, settled func(context.Context) error, wanted keep) error {
	if run.Closed(f.status.ended) {
		return errStopped
	}
	if err := settled(ctx); err != nil || !run.Closed(f.status.synced) {
		return err
	}
	done := make(chan error, 1)
	select {
	case f.asked <- request{wanted, done}:
	case <-f.status.ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("replay: %w", context.Cause(ctx))
	}
	select {
	case err := <-done:
		return err
	case <-f.status.ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("replay: not all objects are delivered: %w", context.Cause(ctx))
	}
}

// redeliver delivers every object again for each Replay and, unless every is 0, at that interval
// with a jitter of 10 %.
func (f *feed[K]) redeliver(ctx context.Context, all list, every time.Duration) {
	var due <-chan time.Time
	next := func() {
		if every > 0 {
			due = time.After(jittered(every))
		}
	}
	next()
	for {
		select {
		case <-due:
			if err := all(ctx, f.retries, nil); err != nil {
				f.report("", fmt.Errorf("resync: %w", err)) // the next one may succeed
			}
			next()
		case r := <-f.asked:
			r.done <- all(ctx, f.retries, r.wanted)
		case <-ctx.Done():
			return
		}
	}
}

// list delivers all objects of a handle to r, with replay set unless it is a resync.
type list func(ctx context.Context, r *retries, replay keep) error

func listOf[T cache.Object](objects *cache.Handle[T]) list {
	return func(ctx context.Context, r *retries, replay keep) error {
		over, cancel := context.WithCancel(ctx)
		cancel() // so that Get does not wait
		for obj, err := range objects.Shared().All(ctx, cache.ListOptions{}) {
			if _, undecodable := errors.AsType[*cache.UndecodableError](err); undecodable {
				return nil // State names them, and the handler gets their events as far as it can
			}
			if err != nil || ctx.Err() != nil {
				return err
			}
			e := pendingEvent{Event: handler.Event{Op: handler.Update, Old: obj, New: obj}, replay: replay}
			r.deliver(ctx, e, func() handler.Object {
				now, err := objects.Shared().Get(over, types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
				if err != nil {
					return nil // it is gone
				}
				return now
			})
		}
		return nil
	}
}
