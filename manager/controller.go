// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/server"
)

// Controller is the interface that Add accepts. *controller.Controller implements it.
//
// The first seven methods name and run the controller; the others describe it. With nothing to
// describe they return nil, 0 or false, and Alive a function that returns nil. All methods must be
// safe for concurrent use.
type Controller interface {
	// Name is unique in a manager.
	Name() string
	// Validate returns an error that names every mistake. It is called before Warm.
	Validate() error
	// Default fills the zero fields of the controller's options from Options.Controller. Each Add
	// calls it, before Observe. After Warm has begun it must do nothing. Validate reports options
	// that cannot be applied.
	Default(o controller.Options)
	// Observe adds hooks. Each Add calls it, before Warm. It must ignore hooks that were added
	// before, and all hooks after Warm has begun.
	Observe(h hook.Hooks)
	// Warm keeps sources and queue current until ctx is done, and joins what it started.
	Warm(ctx context.Context) error
	// Lead reconciles for one term. It takes new keys until take is done. Reconciles run with the
	// context work. It joins what it started.
	Lead(take, work context.Context) error
	// Synced is closed when the controller can lead: each source is synced, or in trouble.
	Synced() <-chan struct{}
	// RequiresSync reports whether this replica must not campaign, and is not ready, before Synced.
	RequiresSync() bool

	// Unsynced describes each source and handle that is not synced, for /readyz.
	Unsynced() []string
	// Running describes the keys in progress, for the error of a stop that is overdue.
	Running() []string
	// Alive returns a function for /livez. It fails when keys were ready for the whole limit and no
	// Reconcile began or returned.
	Alive(limit time.Duration) func() error
	// Reconciles returns the key whose Reconcile runs on the goroutine of a stack, or started it.
	// The stack is in the format of runtime.Stack.
	Reconciles(stack string) (key string, ok bool)
	// CatchUp returns nil when the controller has handled everything that the API server had at the
	// call.
	CatchUp(ctx context.Context) error
	// Quiet waits for a moment without a key in progress. It returns the number of keys taken until
	// then.
	Quiet(ctx context.Context) (taken uint64, err error)
	// Unshown returns the writes that the caches do not contain yet. After Remove, the next
	// controller of this name inherits them.
	Unshown() []ledger.Write
	// Inherit makes the first Reconcile wait until the caches contain the writes, at least one. It
	// is called before Warm.
	Inherit(writes []ledger.Write)
}

func checksOf(c Controller, o *HealthOptions, ready <-chan struct{}) (alive, synced *server.Check) {
	name := "controller-" + c.Name()
	if o != nil && o.StalledAfter > 0 {
		ask := c.Alive(o.StalledAfter)
		alive = server.NewCheck(name, func(context.Context) error { return ask() })
	}
	return alive, server.NewCheck(name, func(context.Context) error { return unready(c, ready) })
}

// unready fails until the manager is ready or, with RequiresSync, until the controller can lead.
func unready(c Controller, ready <-chan struct{}) error {
	waits := strings.Join(c.Unsynced(), "; ")
	switch {
	case !run.Closed(c.Synced()) && (c.RequiresSync() || !run.Closed(ready)):
		return errors.New(strings.TrimSuffix("it waits for its sources: "+waits, ": "))
	case waits != "":
		return server.Remark(waits)
	default:
		return nil
	}
}
