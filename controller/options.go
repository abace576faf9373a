// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Options configures a controller. The zero value works. A manager fills zero fields from its own
// defaults: see [Controller.Default].
type Options struct {
	// Workers is the number of concurrent Reconciles. Default: 1.
	Workers int
	// ReadYourWrites limits how long a key waits for its own writes to appear in the informers, and
	// for its events to appear in the other informers of their resource. Then the key is reconciled
	// anyway, and [Stale] names what is missing. Negative: no wait. Default: 30 s.
	ReadYourWrites time.Duration
	// Deadline is the longest time of one Reconcile. After it, the context ends with a cause that
	// names the deadline, and an error that the Reconcile returns is retried. Default: no limit.
	Deadline time.Duration
	// SlowAfter is how long a Reconcile may run before it is reported once, with its stack. A
	// Reconcile that exceeds its Deadline is reported, too. The log has the first ten reports, then
	// one in ten seconds. [hook.Slow] reports all. Negative: no report. Default: 1 minute.
	SlowAfter time.Duration
	// MaxInterrupts is how often in a row a key's running Reconcile is cancelled because another
	// client changed the generation of its object. The key is reconciled again. The cause of the
	// context is an *[InterruptedError]. Default: 0, the Reconcile continues, and the key is
	// reconciled once more.
	MaxInterrupts int
	// IgnoreAnnotations disables PausedAnnotation and RequeueAnnotation. Set it if users who may
	// change an object must not pause its reconciliation: a paused object keeps its finalizers.
	// Default: false.
	IgnoreAnnotations bool
	// NamespaceTenants makes each namespace a tenant, so namespaces share the Reconciles of a
	// class, however many keys each has. Keys must be of type types.NamespacedName or implement
	// [TenantKey]. Keys without a namespace are one tenant. For weights or other keys, use
	// NewWithQueue with workqueue.Options.Tenant, which takes precedence. Default: false, all keys
	// are one tenant.
	NamespaceTenants bool
	// Classes are the queue's classes and their weights: see workqueue.Options. Default:
	// workqueue.ThreeClasses().
	Classes []workqueue.ClassWeight
	// Backoff is how long a key waits after a failure. Default: workqueue.Exponential{}, from 5 ms
	// to 1000 s.
	Backoff workqueue.Backoff
	// Limiter limits the retries of all keys per second. Controllers with the same Limiter share
	// it. Default: no limit.
	Limiter *rate.Limiter
	// MinInterval is how long changes of a key are collected before its Reconcile, and the least
	// time between two such Reconciles. With MaxWait, each further change delays the Reconcile, up
	// to MaxWait: see workqueue.Options. Default: 0, no delay.
	MinInterval, MaxWait time.Duration
	// MaxAttempts is the number of failures in a row after which a key is not retried. The log then
	// has one error, and [hook.GaveUp] reports it. The key's next event by another client
	// starts again with the first attempt. Conflicts and finalizer.Waiting count. [Terminal] errors
	// and [Stale] do not. A key whose namespace is being deleted is not given up. Default: 0, no
	// limit.
	MaxAttempts int
	// RequireKinds makes the controller lead only after each source and declared Readable was
	// synced once. [Controller.Optional] makes exceptions. Until then, for example while a CRD is
	// missing, the replica is not ready and does not campaign, so another one can lead. It recovers
	// without a restart. If a handle has several namespaces or names, one of them must be synced.
	// The others delay only their own keys. Default: false, the controller leads without kinds that
	// cannot be listed.
	RequireKinds bool
	// Partition divides the controller's keys among replicas: this process reconciles only keys in
	// slots that it owns. A *shard.Group is one. Keys must be of type types.NamespacedName or
	// implement [ShardKey]. See "Shards" in the package doc. Default: nil, all keys.
	Partition term.Partition
	// Grace is how long running Reconciles may continue after Run's context ends. A manager has its
	// own. Default: 25 s, less than the 30 s that Kubernetes gives a pod.
	Grace time.Duration
	// History limits the memory for past Reconciles, which package why shows. Default: one with
	// DefaultHistory; a manager has one for all of its controllers.
	History *History
	// Logger is the base of the logger in each Reconcile's context. Default: the context's, else
	// slog.Default().
	Logger *slog.Logger
	// Hook gets the events of Reconciles, the queue and the sources, from Warm on. A manager adds
	// its own. For each source, the log has the first ten handler failures, then one in ten
	// seconds. Default: none.
	Hook *hook.Hook
}

// Validate returns an error that names each invalid field, its value and the allowed range, or nil.
func (o Options) Validate() error {
	return errors.Join(o.validate(), workqueue.Options[int]{
		Name: "of controller.Options", Classes: o.Classes, Backoff: o.Backoff, Limiter: o.Limiter, MinInterval: o.MinInterval, MaxWait: o.MaxWait,
	}.Validate())
}

func (o Options) validate() error {
	return errors.Join(
		argument.NotNegative("controller.Options.Workers", o.Workers),
		argument.NotNegative("controller.Options.Deadline", o.Deadline),
		argument.NotNegative("controller.Options.MaxInterrupts", o.MaxInterrupts),
		argument.NotNegative("controller.Options.MaxAttempts", o.MaxAttempts),
		argument.NotNegative("controller.Options.Grace", o.Grace),
	)
}

const defaultReadYourWrites = 30 * time.Second

func (o Options) workers() int { return max(o.Workers, 1) } // Validate reports a negative number

func (o Options) or(d Options) Options {
	o.Workers, o.ReadYourWrites = cmp.Or(o.Workers, d.Workers), cmp.Or(o.ReadYourWrites, d.ReadYourWrites)
	o.Deadline, o.SlowAfter = cmp.Or(o.Deadline, d.Deadline), cmp.Or(o.SlowAfter, d.SlowAfter)
	o.MaxInterrupts, o.MaxAttempts = cmp.Or(o.MaxInterrupts, d.MaxInterrupts), cmp.Or(o.MaxAttempts, d.MaxAttempts)
	o.IgnoreAnnotations = o.IgnoreAnnotations || d.IgnoreAnnotations
	o.NamespaceTenants, o.RequireKinds = o.NamespaceTenants || d.NamespaceTenants, o.RequireKinds || d.RequireKinds
	if o.Classes == nil {
		o.Classes = d.Classes
	}
	if o.Backoff == nil {
		o.Backoff = d.Backoff
	}
	o.Limiter, o.Partition, o.History = cmp.Or(o.Limiter, d.Limiter), cmp.Or(o.Partition, d.Partition), cmp.Or(o.History, d.History)
	if o.MinInterval == 0 && o.MaxWait == 0 { // one setting
		o.MinInterval, o.MaxWait = d.MinInterval, d.MaxWait
	}
	return o
}
