// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Reasons of the events of [Failing].
const (
	ReasonFailing  = "ReconcileFailing"
	ReasonFighting = "ReconcileFighting"
)

// Failing returns a Reconciler that calls r. It records one event for an object whose Reconciles
// have failed for a time, such as 10 minutes:
//
//	r := events.Failing(&reconciler{…}, 10*time.Minute, websites, events.For(mgr, events.Options{}))
//	c := controller.New("website", r, controller.Options{})
//
// The event is a Warning with [ReasonFailing]. Its note has the number of failures in a row and the
// last error. It is recorded at the first failure after that time. With 10 minutes and the default
// backoff, this is within 11 minutes. After a success, an object can get another event. A new
// leader counts from the start.
//
// Conflicts and exceeded deadlines count as failures, interrupted Reconciles do not. A key that is
// not retried, because of a terminal error or MaxAttempts, counts from the start at its next
// Reconcile.
//
// An object whose key fights with another writer gets a Warning with [ReasonFighting], once for
// each fight: see "Fights" in the package doc of controller. The note names the fields and the
// writer.
//
// The handle of has the objects that the keys name. The controller must watch it or declare it with
// Reads. An object that is gone gets no event. If after is not positive, Failing returns r. Pass
// the result to one controller only.
func Failing[T cache.Object](
	r controller.Reconciler[types.NamespacedName], after time.Duration, of *cache.Handle[T], to *Recorder,
) controller.Reconciler[types.NamespacedName] {
	if argument.IsNil(r) || after <= 0 {
		return r
	}
	f := &failing{Reconciler: r, after: after, to: to}
	if of == nil || to == nil {
		f.wrong = errors.New("events.Failing: the handle or the recorder is nil; pass the handle of the objects, and the result of events.For")
		return f
	}
	f.read = func(ctx context.Context, key types.NamespacedName) (cache.Object, error) { return of.Get(ctx, key) }
	return f
}

type failing struct {
	controller.Reconciler[types.NamespacedName]

	after time.Duration
	read  func(context.Context, types.NamespacedName) (cache.Object, error)
	to    *Recorder
	wrong error

	rows   sync.Map // *row by types.NamespacedName; one Reconcile at a time uses the row of its key
	fights sync.Map // when a key has fought last; of those that may fight still
}

type row struct {
	since    time.Time
	failures int
	over     bool // recorded, or impossible
}

// Reconcile implements controller.Reconciler.
func (f *failing) Reconcile(ctx context.Context, key types.NamespacedName) (result controller.Result, err error) {
	if f.wrong != nil {
		return controller.Result{}, controller.Terminal(f.wrong)
	}
	returned := false
	defer func() {
		if !returned {
			err = errors.New("the Reconcile panicked; the log has its stack")
		}
		f.ended(ctx, key, err)
	}()
	result, err = f.Reconciler.Reconcile(ctx, key)
	returned = true
	return result, err
}

// readTimeout limits the read of an object, in case its informer is not synced.
const readTimeout = time.Second

func (f *failing) ended(ctx context.Context, key types.NamespacedName, err error) {
	if err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return // interrupted
	}
	info, _ := controller.InfoFromContext(ctx)
	if f.begins(key, info.Fight) {
		f.record(ctx, key, ReasonFighting, info.Fight)
	}
	if failures := f.count(&info, key, err); failures > 0 {
		f.record(ctx, key, ReasonFailing, fmt.Sprintf("%d Reconciles in a row have failed, for %s; the last error: %v", failures, f.after, err))
	}
}

// fightOver is how long after its last round a fight is over, as in package controller.
const fightOver = time.Minute

// begins reports whether a fight is a new one.
func (f *failing) begins(key types.NamespacedName, fight string) bool {
	last, known := f.fights.Load(key)
	if at, _ := last.(time.Time); known && time.Since(at) > fightOver {
		f.fights.Delete(key)
		known = false
	}
	if fight == "" {
		return false
	}
	f.fights.Store(key, time.Now())
	return !known
}

func (f *failing) record(ctx context.Context, key types.NamespacedName, reason, note string) {
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	obj, readErr := f.read(reading, key)
	switch {
	case readErr == nil:
		f.to.Eventf(ctx, obj, Warning, reason, "Reconcile", "%s", note)
	case !apierrors.IsNotFound(readErr):
		controller.Logger(ctx).Warn("no event about the object, because it cannot be read", "err", readErr)
	}
}

func (f *failing) count(info *controller.Info, key types.NamespacedName, err error) (failures int) {
	if err == nil {
		f.rows.Delete(key)
		return 0
	}
	found, _ := f.rows.Load(key)
	r, _ := found.(*row)
	// The key may have been given up before.
	if r == nil || info.Attempt == 1 {
		r = &row{since: time.Now()}
		f.rows.Store(key, r)
	}
	r.failures++
	if r.over || time.Since(r.since) < f.after {
		return 0
	}
	r.over = true
	return r.failures
}
