// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// Options configures a controller. The zero value works.
type Options struct {
	// Workers is the number of concurrent Reconciles, each of another key. Default: 1.
	Workers int
	// ReadYourWrites limits how long a key waits until the informers show its last Reconcile's
	// writes. Then the key is reconciled anyway, and [Stale] names what is missing. Negative: keys
	// do not wait. Default: 30 s.
	ReadYourWrites time.Duration
	// Deadline limits one Reconcile. When it is over, the context ends with a cause that names the
	// deadline. An error that the Reconcile then returns is retried. Default: no limit.
	Deadline time.Duration
	// SlowAfter is the duration after which a running Reconcile is reported once, with its
	// goroutine's stack. A Reconcile that exceeds its Deadline is reported, too. The log has the
	// first ten reports, then one in ten seconds. Hooks.Slow gets each. Negative: no report.
	// Default: 1 minute.
	SlowAfter time.Duration
	// Interrupt cancels a running Reconcile when another client changes the generation of its key's
	// object, and reconciles the key again. The cause of the context is an *[Interruption]. The
	// value limits how often in a row this happens to a key. Default: 0, the Reconcile continues,
	// and the key is reconciled once more.
	Interrupt int
	// IgnoreAnnotations disables PausedAnnotation and RequeueAnnotation. Set it if users who may
	// change an object must not pause its reconciliation. A paused object keeps its finalizers.
	// Default: false.
	IgnoreAnnotations bool
	// RequireKinds makes the controller lead only after each source and each declared Readable was
	// synced once. So a replica whose CRD is missing is not ready and does not campaign for its
	// Lease, for any time, and another replica can lead. It recovers without a restart. What fails
	// after the first sync has the same effect as without RequireKinds. Default: false, the
	// controller leads without what cannot be listed, such as a CRD that is installed later.
	RequireKinds bool
	// Grace is how long running Reconciles may continue after Run's context ends. A manager has its
	// own grace time. Default: 25 s, less than the 30 s that Kubernetes gives a pod.
	Grace time.Duration
	// Logger is the base of the logger in each Reconcile's context. Default: the context's, else
	// slog.Default().
	Logger *slog.Logger
	// Hooks observe the Reconciles, the queue and the sources, from Warm on. A manager adds its own
	// Hooks. For each source, the log has the first ten handler failures, then one in ten seconds.
	// To observe the queue from New on, use workqueue.Options.Hooks. Default: none.
	Hooks hook.Hooks
}

func (o Options) validate() error {
	var wrong []error
	for _, field := range []struct {
		name  string
		value any
		isNeg bool
	}{
		{"Workers", o.Workers, o.Workers < 0},
		{"Deadline", o.Deadline, o.Deadline < 0},
		{"Interrupt", o.Interrupt, o.Interrupt < 0},
		{"Grace", o.Grace, o.Grace < 0},
	} {
		if field.isNeg {
			wrong = append(wrong, fmt.Errorf("controller.Options.%s: %v, must not be negative", field.name, field.value))
		}
	}
	return errors.Join(wrong...)
}

const defaultReadYourWrites = 30 * time.Second

func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.ReadYourWrites == 0 {
		o.ReadYourWrites = defaultReadYourWrites
	}
	if o.SlowAfter == 0 {
		o.SlowAfter = time.Minute
	}
	if o.Grace == 0 {
		o.Grace = 25 * time.Second
	}
	o.Hooks = hook.Hooks{Controller: &hook.Controller{}}.With(o.Hooks)
	return o
}
