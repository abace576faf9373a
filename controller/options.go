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
	// Grace is for how long running Reconciles may go on after Run is asked to stop. A manager has a grace time of its own
	// and does not look at this one. Default: 25 s, which is less than the 30 s that Kubernetes gives a pod.
	Grace time.Duration
	// Logger is the base of the logger in each Reconcile's context. Default: the context's, else slog.Default().
	Logger *slog.Logger
	// Hooks observes the Reconciles. Default: nobody does.
	Hooks *hook.Controller
	// SourceHooks observes the sources. Default: failures of handlers are logged.
	SourceHooks *hook.Source
}

// Validate names each field that is wrong.
func (o Options) Validate() error {
	var wrong []error
	if o.Workers < 0 {
		wrong = append(wrong, fmt.Errorf("controller.Options.Workers: %d, must not be negative", o.Workers))
	}
	if o.Grace < 0 {
		wrong = append(wrong, fmt.Errorf("controller.Options.Grace: %s, must not be negative", o.Grace))
	}
	return errors.Join(wrong...)
}

func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.Grace == 0 {
		o.Grace = 25 * time.Second
	}
	if o.Hooks == nil {
		o.Hooks = &hook.Controller{}
	}
	return o
}
