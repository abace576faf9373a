// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/server"
)

// Controller is what Add takes. A *controller.Controller is one.
//
// The first five methods run a controller. The others describe it; a controller that has nothing
// to describe returns at once: nil, 0 and false from each, and nil from the function of Alive.
type Controller interface {
	// Name is unique in a manager.
	Name() string
	// Validate returns, before anything runs, what is wrong.
	Validate() error
	// Warm keeps the controller current until ctx is done, and joins what it started.
	Warm(ctx context.Context) error
	// Lead acts for one term: it takes new work until take is done, and does it on work. It joins
	// what it started.
	Lead(take, work context.Context) error
	// Synced is closed when the controller could lead: its sources are synced, or in trouble that
	// keeps them from it.
	Synced() <-chan struct{}

	// Unsynced describes what is not synced, for /readyz.
	Unsynced() []string
	// Running describes the keys in progress, for the error of a stop that takes too long.
	Running() []string
	// Alive returns a function that fails when keys were ready for the limit and no work began or
	// completed, for /livez.
	Alive(limit time.Duration) func() error
	// Reconciles reports whether a goroutine works on a key, or a goroutine that it started. stack
	// is the goroutine's, as runtime.Stack writes it.
	Reconciles(stack string) (key string, ok bool)
	// CatchUp returns nil once the controller has handled everything that the API server had at the
	// call, for Manager.Idle.
	CatchUp(ctx context.Context) error
	// Quiet waits for a moment at which no key is in progress, and returns how many keys were taken
	// until then, for Manager.Idle.
	Quiet(ctx context.Context) (taken uint64, err error)
	// Unshown returns the writes that the caches do not contain yet. The next controller of this
	// name inherits them when this one is removed.
	Unshown() []ledger.Write
	// Inherit makes the first work wait until the caches contain the writes. It is called before
	// Warm, and only if there are any.
	Inherit(writes []ledger.Write)
}

// checksOf makes the checks of a controller for /livez and /readyz.
func checksOf(c Controller, o *HealthOptions, ready <-chan struct{}) (alive, synced *server.Check) {
	name := "controller-" + c.Name()
	if o != nil && o.StalledAfter > 0 {
		ask := c.Alive(o.StalledAfter)
		alive = server.NewCheck(name, func(context.Context) error { return ask() })
	}
	return alive, server.NewCheck(name, func(context.Context) error { return unready(c, ready) })
}

// unready describes what the controller waits for, unless the manager is ready.
func unready(c Controller, ready <-chan struct{}) error {
	waits := strings.Join(c.Unsynced(), "; ")
	switch {
	case !run.Closed(c.Synced()) && !run.Closed(ready):
		return errors.New(strings.TrimSuffix("it waits for its sources: "+waits, ": "))
	case waits != "":
		return server.Remark(waits)
	default:
		return nil
	}
}
