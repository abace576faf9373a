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
		if time.Since(began) != time.Second {
			t.Errorf("it ended after %s", time.Since(began))
		}
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
		if err := run.Sleep(ctx, time.Millisecond); err != nil || time.Since(began) != time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := run.Sleep(ctx, -1); err != nil {
			t.Error(err)
		}
		if err := run.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := run.Sleep(ctx, 0); err == nil {
			t.Error("it slept although the context is done")
		}
	})
}

func TestBarrier(t *testing.T) {
	var b run.Barrier
	b.Open()
	if !run.Closed(b.When(true)) {
		t.Error("a condition that holds is waited for")
	}
	first, second := b.When(false), b.When(false)
	if run.Closed(first) || run.Closed(second) {
		t.Error("it is open although the condition does not hold")
	}
	b.Open()
	if !run.Closed(first) || !run.Closed(second) || run.Closed(b.When(false)) {
		t.Error("Open releases those that wait, and no others")
	}
}
