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
	// ReadYourWrites is for how long a key is put off at most while an informer does not show what its last Reconcile has
	// written (C6). After that it is reconciled all the same, and Stale says what is missing. Negative: it is never put off.
	// Default: 30 s.
	ReadYourWrites time.Duration
	// Deadline is how long one Reconcile may take. Its context ends then, with a cause that says so; an error that it returns
	// is retried. Default: as long as it likes.
	Deadline time.Duration
	// SlowAfter is after how long a Reconcile that still runs is reported, once, with the stack of its goroutine (C9); so is one
	// that is over its Deadline. Where many are slow, the log has ten, and then one in ten seconds; the hook is told of each.
	// Negative: none is reported. Default: 1 minute.
	SlowAfter time.Duration
	// Interrupt has a running Reconcile cancelled when the generation of the object that its key names moves on, and the key
	// reconciled anew: at most this many times in a row, so that one gets to its end. The cause of its context is then an
	// *Interruption. Default 0: it is left alone, and the key is reconciled once more after it.
	Interrupt int
	// IgnoreAnnotations turns PausedAnnotation and RequeueAnnotation off. Set it if users who may
	// change an object must not be able to pause its reconciliation: a paused object is not
	// reconciled, not even to remove its finalizers. Default: they are heeded.
	IgnoreAnnotations bool
	// Grace is for how long running Reconciles may go on after Run is asked to stop. A manager has a grace time of its own
	// and does not look at this one. Default: 25 s, which is less than the 30 s that Kubernetes gives a pod.
	Grace time.Duration
	// Logger is the base of the logger in each Reconcile's context. Default: the context's, else slog.Default().
	Logger *slog.Logger
	// Hooks observes the Reconciles. Default: nobody does.
	Hooks *hook.Controller
	// QueueHooks observes the queue while the controller is warmed: that is when Opened is called, so that a controller which never
	// runs leaves nothing behind. To observe it from the constructor on, give Hooks in workqueue.Options. Default: nobody does.
	QueueHooks *hook.Queue
	// SourceHooks observes the sources. Whether or not somebody does, failures of handlers are logged: of each source ten, and then
	// one in ten seconds. Default: nobody does.
	SourceHooks *hook.Source
}

// Validate names each field that is wrong.
func (o Options) Validate() error {
	var wrong []error
	if o.Workers < 0 {
		wrong = append(wrong, fmt.Errorf("controller.Options.Workers: %d, must not be negative", o.Workers))
	}
	if o.Deadline < 0 {
		wrong = append(wrong, fmt.Errorf("controller.Options.Deadline: %s, must not be negative", o.Deadline))
	}
	if o.Interrupt < 0 {
		wrong = append(wrong, fmt.Errorf("controller.Options.Interrupt: %d, must not be negative", o.Interrupt))
	}
	if o.Grace < 0 {
		wrong = append(wrong, fmt.Errorf("controller.Options.Grace: %s, must not be negative", o.Grace))
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
