// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

const (
	crowdSize    = 5000
	crowdWorkers = 4
	mostBefore   = 5 // Reconciles that may start between a change and its own
)

// TestW6_ChangesGetAheadOfAllOthers: with the defaults, a change is reconciled within a few keys.
// Meanwhile 5,000 others wait since the initial list, while these fail again and again, and while
// other changed keys fail.
func TestW6_ChangesGetAheadOfAllOthers(t *testing.T) {
	for _, others := range []struct {
		name    string
		fail    bool
		changed bool
		wait    time.Duration // until the first change
	}{
		{"the initial list", false, false, 100 * time.Millisecond},
		{"an initial list that fails", true, false, 2 * time.Second},
		{"changes that fail", true, true, 2 * time.Second},
	} {
		t.Run(others.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int64
				seen := make(chan int64, 1)
				c := newController(func(_ context.Context, key string) (controller.Result, error) {
					n := runs.Add(1)
					if key == "change" {
						seen <- n
						return controller.Result{}, nil
					}
					time.Sleep(time.Millisecond)
					if others.fail {
						return controller.Result{}, errors.New("as all others")
					}
					return controller.Result{}, nil
				}, controller.Options{Workers: crowdWorkers})
				keys := make([]string, crowdSize)
				for i := range keys {
					keys[i] = fmt.Sprint(i)
				}
				src := newSource("crowd", keys...)
				c.Watch(src)
				stop := start(t, c)
				queue := (<-src.queue).Queue
				if others.changed {
					queue.AddAll(keys, workqueue.AddOptions{})
				}
				time.Sleep(others.wait)
				for range 20 {
					synctest.Wait() // the workers have started what they start at this moment
					before := runs.Load()
					queue.AddAll([]string{"change"}, workqueue.AddOptions{})
					testkit.AtMost(t, <-seen-before-1, mostBefore)
					time.Sleep(10 * time.Millisecond)
				}
				testkit.AtLeast(t, c.TheQueue().Len().Ready, crowdSize/10)
				ok(t, stop())
			})
		})
	}
}
