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

// Options configures New. The zero value works.
type Options struct {
	// Workers is how many Reconciles run at once, each for another key. Default: 1.
	Workers int
	// ReadYourWrites is how long a key waits at most until the informers show what its last Reconcile
	// has written (C6). Then it is reconciled anyway, and Stale names what is missing. Negative: keys
	// do not wait. Default: 30 s.
	ReadYourWrites time.Duration
	// Deadline is how long one Reconcile may take. Then its context ends with a cause that names the
	// deadline, and an error that it returns is retried. Default: no limit.
	Deadline time.Duration
	// SlowAfter is how long a Reconcile may run before it is reported once, with the stack of its
	// goroutine (C9). One that is over its Deadline is reported, too. The log has the first ten, then
	// one in ten seconds; the hook is told of each. Negative: none is reported. Default: 1 minute.
	SlowAfter time.Duration
	// Interrupt cancels a running Reconcile when the generation of the object that its key names moves
	// on, and reconciles the key again: at most this many times in a row. The cause of its context is
	// then an *Interruption. Default 0: it goes on, and the key is reconciled once more after it.
	Interrupt int
	// IgnoreAnnotations turns PausedAnnotation and RequeueAnnotation off. Set it if users who may
	// change an object must not be able to pause its reconciliation: a paused object is not
	// reconciled, not even to remove its finalizers. Default: they are heeded.
	IgnoreAnnotations bool
	// Grace is how long running Reconciles may go on when Run is to stop. A manager has its own grace
	// time. Default: 25 s, which is less than the 30 s that Kubernetes gives a pod.
	Grace time.Duration
	// Logger is the base of the logger in each Reconcile's context. Default: the context's, else
	// slog.Default().
	Logger *slog.Logger
	// Hooks observes the Reconciles. Default: none.
	Hooks *hook.Controller
	// QueueHooks observes the queue from Warm on, which calls Opened: a controller that never runs
	// leaves nothing behind. To observe it from New on, use Hooks of workqueue.Options. Default: none.
	QueueHooks *hook.Queue
	// SourceHooks observes the sources. Of each source, the log has the first ten failures of handlers,
	// then one in ten seconds. Default: none.
	SourceHooks *hook.Source
}

// validate names each field that is wrong.
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
	if o.Hooks == nil {
		o.Hooks = &hook.Controller{}
	}
	return o
}
