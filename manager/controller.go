// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// Controller is the interface that Add accepts. *controller.Controller implements it, and documents
// the methods.
//
// The first six methods name and run the controller; the others describe it. With nothing to
// describe they return nil, 0 or false, and Alive a function that returns nil. All methods must be
// safe for concurrent use.
type Controller interface {
	Name() string
	// Validate is called before Warm.
	Validate() error
	// Default gets Options.ControllerDefaults with the manager's hooks. Each Add calls it. It must
	// ignore hooks that it got before. After Warm has begun it must do nothing.
	Default(o controller.Options)
	// Warm joins what it started.
	Warm(ctx context.Context) error
	// Lead joins what it started.
	Lead(take, work context.Context) error
	Synced() <-chan struct{}
	RequiresSync() bool

	// Unsynced is for /readyz.
	Unsynced() []string
	// Running describes the keys in progress, for the error of a stop that takes too long.
	Running() []string
	// Alive is for /livez.
	Alive(limit time.Duration) func() error
	// CatchUp is for Manager.Idle.
	CatchUp(ctx context.Context) error
	// Quiet is for Manager.Idle.
	Quiet(ctx context.Context) (taken uint64, err error)
	// Failing is for Manager.Idle.
	Failing() []controller.FailedKey
	// AwaitWrites is called by Remove between Lead and the end of Warm.
	AwaitWrites(ctx context.Context) error
}

func checksOf(c Controller, stalledAfter time.Duration, ready <-chan struct{}) (alive, synced *check) {
	name := "controller-" + c.Name()
	if stalledAfter > 0 {
		ask := c.Alive(stalledAfter)
		alive = newCheck(name, func(context.Context) error { return ask() })
	}
	return alive, newCheck(name, func(context.Context) error { return unready(c, ready) })
}

// unready fails until the controller can lead or, without RequiresSync, the manager is ready.
func unready(c Controller, ready <-chan struct{}) error {
	waits := strings.Join(c.Unsynced(), "; ")
	switch {
	case !run.Closed(c.Synced()) && (c.RequiresSync() || !run.Closed(ready)):
		return errors.New(strings.TrimSuffix("it waits for its sources: "+waits, ": "))
	case waits != "":
		return Remark(waits)
	default:
		return nil
	}
}
