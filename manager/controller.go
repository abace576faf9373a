// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// Controller is the interface that Add accepts. *controller.Controller implements it, and documents
// the methods. All methods must be safe for concurrent use.
type Controller interface {
	Name() string
	// Validate is called before Warm.
	Validate() error
	// Default gets Options.ControllerDefaults with the manager's Hook. Each Add calls it. It must
	// ignore observers that it got before. After Warm has begun it must do nothing.
	Default(o controller.Options)
	// Warm joins what it started.
	Warm(ctx context.Context) error
	// Lead joins what it started.
	Lead(take, work context.Context) error
	Synced() <-chan struct{}
	// WaitIdle is for Manager.Idle.
	WaitIdle(ctx context.Context) (controller.Idle, error)
	// AwaitWrites is called by Remove between Lead and the end of Warm.
	AwaitWrites(ctx context.Context) error
	// Report is for Livez, Readyz, and the error of a stop that takes too long.
	Report() controller.Report
	// Failing and Keys are for package debug.
	Failing() []controller.FailedKey
	Keys() iter.Seq[controller.KeySummary]
	// Marshaler is for package debug: the whole state, without content of objects.
	json.Marshaler
}

// stalledAfter is the default of Options.StalledAfter: most Reconciles take seconds, and a restart
// that is not needed makes a slow one begin again.
const stalledAfter = 30 * time.Minute

// progress fails when no Reconcile of a controller has begun or returned for limit. Its Deadline,
// if any, ends each Reconcile, which may need as long again to return.
func progress(r controller.Report, limit time.Duration) error {
	return r.CheckProgress(cmp.Or(limit, max(stalledAfter, 2*min(r.Deadline, math.MaxInt64/2))))
}

// unready fails until the controller can lead or, without RequireKinds, the manager is ready.
func unready(c Controller, ready <-chan struct{}) error {
	report := c.Report()
	waits := strings.Join(report.Unsynced, "; ")
	switch {
	case !run.Closed(c.Synced()) && (report.RequireKinds || !run.Closed(ready)):
		return errors.New(strings.TrimSuffix("it waits for its sources: "+waits, ": "))
	case waits != "":
		return Remark(waits)
	default:
		return nil
	}
}
