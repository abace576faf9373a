// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestMaxAttempts_InterruptionsDoNotCount: a Reconcile that a change of the object cancels is not
// an attempt, and does not reset the attempts.
func TestMaxAttempts_InterruptionsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var attempts []int
		m := newMoving(t, controller.Options{MaxAttempts: 3, MaxInterrupts: 5}, func(m *moving, ctx context.Context) error {
			info, _ := controller.InfoFromContext(ctx)
			attempts = append(attempts, info.Attempt)
			if n++; n == 2 {
				return minute(m, ctx)
			}
			return errors.New("failed")
		})
		time.Sleep(10 * time.Second)
		m.replicas(2)
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, fmt.Sprint(m.ended.list(), attempts, m.ended.last().GaveUp), "[error interrupted error error] [1 2 2 3] true")
	})
}

// TestMaxAttempts_StaleDoesNotCount: neither does a Reconcile that waits for its caches.
func TestMaxAttempts_StaleDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended outcomes
		var attempts []int
		src := newSource("late", "a")
		src.hold, src.trouble = make(chan struct{}), errors.New("the API is not served")
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			info, _ := controller.InfoFromContext(ctx)
			if attempts = append(attempts, info.Attempt); len(attempts) == 2 {
				return controller.Result{}, controller.Stale(ctx)
			}
			return controller.Result{}, errors.New("failed")
		}, controller.Options{MaxAttempts: 3, Logger: silent, Hook: ended.hooks()})
		c.Watch(src)
		stop := start(t, c)
		time.Sleep(time.Second)
		close(src.hold)
		time.Sleep(time.Hour)
		testkit.Equal(t, fmt.Sprint(ended.list(), attempts, ended.last().GaveUp), "[error stale error error] [1 2 2 3] true")
		ok(t, stop())
	})
}
