// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWithGrace_EndsWhenTheGraceTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take, stop := context.WithCancel(t.Context())
		work, cancel := run.WithGrace(take, t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Minute)
		began := time.Now()
		stop()
		<-work.Done()
		testkit.Equal(t, time.Since(began), time.Second, "it ended after")
		if err := context.Cause(work); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the grace time of 1s is over") {
			t.Error(err)
		}
	})
}

func TestWithGrace_EndsWithTheWork(t *testing.T) {
	work, stop := context.WithCancel(t.Context())
	limited, cancel := run.WithGrace(t.Context(), work, time.Hour)
	defer cancel()
	stop()
	<-limited.Done()
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		testkit.Equal(t, run.Sleep(ctx, time.Millisecond), nil)
		testkit.Equal(t, time.Since(began), time.Millisecond)
		testkit.Equal(t, run.Sleep(ctx, -1), nil)
		testkit.ErrorIs(t, run.Sleep(ctx, time.Hour), context.DeadlineExceeded)
		testkit.Equal(t, time.Since(began), time.Second)
		testkit.NotEqual(t, run.Sleep(ctx, 0), nil, "it slept although the context is done")
	})
}

func TestBarrier(t *testing.T) {
	var b run.Barrier
	b.Open()
	testkit.Equal(t, run.Closed(b.When(true)), true, "a condition that holds is waited for")
	first, second := b.When(false), b.When(false)
	if run.Closed(first) || run.Closed(second) {
		t.Error("it is open although the condition does not hold")
	}
	b.Open()
	if !run.Closed(first) || !run.Closed(second) || run.Closed(b.When(false)) {
		t.Error("Open releases those that wait, and no others")
	}
}
