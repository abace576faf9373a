// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Options configures a [Writer].
type Options struct {
	// Window is how long a changed condition waits, so that one write has the changes of several
	// Reconciles. Default: 0, each is written at once.
	Window time.Duration
}

// Writer writes the status of a kind like [Apply] and [Update], but combines changes that follow
// each other within a window. Make one for each controller. It is safe for concurrent use.
//
// A write of a changed condition is delayed until Options.Window after the first delayed one of the
// object. The controller must then be told to reconcile the key again:
//
//	wait, err := w.Apply(ctx, s, desired)
//	return controller.Result{RequeueAfter: wait}, err
//
// A delayed status is computed again and not kept, so what is written is current. Other writes,
// which change no condition, are sent at once, and so is each write to an object that is being
// deleted.
type Writer[T client.Object] struct {
	h       *client.Handle[T]
	window  time.Duration
	mu      sync.Mutex
	delayed map[types.UID]time.Time // since when
	swept   time.Time
}

// NewWriter returns a Writer that writes through h.
func NewWriter[T client.Object](h *client.Handle[T], o Options) *Writer[T] {
	return &Writer[T]{h: h, window: o.Window, delayed: map[types.UID]time.Time{}}
}

// Apply is [Apply], unless the write is delayed: then nothing is sent, and wait is the time until
// it is due. Mistakes of s are errors at once.
func (w *Writer[T]) Apply(ctx context.Context, s *Set, desired client.ApplyConfiguration, options ...client.Option) (wait time.Duration, err error) {
	return w.write(s, argument.IsNil(desired), func() error {
		_, err := Apply(ctx, w.h, s, desired, options...)
		return err
	})
}

// Update is [Update], unless the write is delayed: then nothing is sent, and wait is the time until
// it is due. Mistakes of s are errors at once.
func (w *Writer[T]) Update(ctx context.Context, s *Set, obj T, options ...client.Option) (wait time.Duration, err error) {
	return w.write(s, argument.IsNil(obj), func() error {
		_, err := Update(ctx, w.h, s, obj, options...)
		return err
	})
}

func (w *Writer[T]) write(s *Set, nothing bool, do func() error) (time.Duration, error) {
	if err := s.writable(nothing); err != nil {
		return 0, err
	}
	if wait := w.delay(s, time.Now()); wait > 0 {
		return wait, nil
	}
	err := do()
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.delayed, s.object.UID)
	}
	return 0, err
}

func (w *Writer[T]) delay(s *Set, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, found := w.delayed[s.object.UID]
	if found {
		return w.window - now.Sub(since)
	}
	if w.window <= 0 || !s.changed || s.object.DeletionTimestamp != nil {
		return 0
	}
	w.sweep(now)
	w.delayed[s.object.UID] = now
	return w.window
}

// sweep forgets objects that were deleted while their status was delayed. A key that only waited
// longer for a worker starts a new window.
func (w *Writer[T]) sweep(now time.Time) {
	longest := w.window + time.Minute
	if now.Sub(w.swept) < longest {
		return
	}
	w.swept = now
	maps.DeleteFunc(w.delayed, func(_ types.UID, since time.Time) bool { return now.Sub(since) >= longest })
}
