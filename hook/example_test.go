// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// Two observers of controllers are combined. A program passes the result to manager.Options.Hooks.
// Here the example itself reports two Reconciles.
func Example() {
	var failures atomic.Int64 // several workers call a hook at the same time
	count := hook.Hooks{Controller: &hook.Controller{Reconciled: func(_ context.Context, r hook.Reconcile) {
		if r.Outcome == hook.Failed {
			failures.Add(1)
		}
	}}}
	show := hook.Hooks{Controller: &hook.Controller{Reconciled: func(_ context.Context, r hook.Reconcile) {
		fmt.Println(r.Controller, r.Outcome, r.Took, r.Err)
	}}}

	hooks := count.With(show).Controller
	hooks.Reconciled(context.Background(), hook.Reconcile{
		Controller: "website", Took: 12 * time.Millisecond, Outcome: hook.Succeeded,
	})
	hooks.Reconciled(context.Background(), hook.Reconcile{
		Controller: "website", Took: time.Second, Outcome: hook.Failed, Err: errors.New("no quota left"),
	})
	fmt.Println("failures:", failures.Load())
	// Output:
	// website success 12ms <nil>
	// website error 1s no quota left
	// failures: 1
}
