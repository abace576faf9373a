// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// Two observers of Reconciles are joined. A program passes the result to manager.Options.Hook. Here
// the example itself reports two Reconciles.
func Example() {
	var failures atomic.Int64 // several workers call an observer at the same time
	count := hook.On(func(r *hook.Reconciled) {
		if r.Outcome == hook.Failed {
			failures.Add(1)
		}
	})
	show := hook.On(func(r *hook.Reconciled) {
		fmt.Println(r.Controller, r.Outcome, r.Took, r.Err)
	})

	both := hook.Join(count, show)
	both.Send(&hook.Reconciled{
		Controller: "website", Took: 12 * time.Millisecond, Outcome: hook.Succeeded,
	})
	both.Send(&hook.Reconciled{
		Controller: "website", Took: time.Second, Outcome: hook.Failed, Err: errors.New("no quota left"),
	})
	fmt.Println("failures:", failures.Load())
	// Output:
	// website success 12ms <nil>
	// website error 1s no quota left
	// failures: 1
}
