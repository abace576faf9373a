// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// hang returns a function that ignores its context until free is closed.
func hang(free <-chan struct{}) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		<-free
		return "late", nil
	}
}

// TestCall_ReturnsWhatTheFunctionReturns: also if it returns just after the end of its context,
// panics or ends its goroutine.
func TestCall_ReturnsWhatTheFunctionReturns(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(context.Context) (string, error)
		text string
		err  string
	}{
		"a value":       {func(context.Context) (string, error) { return "here", nil }, "here", ""},
		"an error":      {func(context.Context) (string, error) { return "", errors.New("no") }, "", "no"},
		"its context's": {func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, "", "deadline"},
		"a little later": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return "here", nil
		}, "here", ""},
		"a panic": {func(context.Context) (string, error) { panic("mad") }, "", "panic: mad"},
		"nothing": {func(context.Context) (string, error) { runtime.Goexit(); return "", nil }, "", "ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := &run.Calls{Of: "it"}
				text, err := run.Call(t.Context(), calls, time.Second, c.f)
				if text != c.text || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("it returns %q, %v", text, err)
				}
				testkit.Equal(t, errors.Join(run.Join(time.Second, calls), calls.Stuck(0)), nil)
			})
		})
	}
}

// TestCall_WaitsForNothingLongerThanItsContext: at most three calls go on. When one returns, the
// next one is made. A late result is passed on.
func TestCall_WaitsForNothingLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, free, late := &run.Calls{Of: "it"}, make(chan struct{}), make(chan string, 3)
		ended := make(chan string)
		_, stop, err := run.Open(t.Context(), calls, time.Second, func(context.Context) (string, error) { return "open", nil }, func(text string) { ended <- text })
		testkit.NoError(t, err)
		var made atomic.Int32
		ask := func(f func(context.Context) (string, error)) error {
			_, _, err := run.Open(t.Context(), calls, time.Second, func(ctx context.Context) (string, error) {
				made.Add(1)
				return f(ctx)
			}, func(text string) { late <- text })
			return err
		}
		began := time.Now()
		for range 5 {
			overdue, ok := errors.AsType[*run.OverdueError](ask(hang(free)))
			if !ok || !overdue.Began.Equal(began) {
				t.Fatalf("the error is %v, want one about the first call", overdue)
			}
		}
		if took := time.Since(began); made.Load() != 3 || took > 4*time.Second {
			t.Errorf("%d calls were made, for %s", made.Load(), took)
		}
		if calls.Stuck(time.Hour) != nil || calls.Stuck(0) == nil {
			t.Errorf("stuck: %v, %v", calls.Stuck(time.Hour), calls.Stuck(0))
		}
		if err := run.Join(time.Second, calls); err == nil || !strings.Contains(err.Error(), "a request for it has not returned since") || !strings.Contains(err.Error(), "calls_test.go") {
			t.Errorf("Join returns %v", err)
		}
		go stop() // in spite of the three
		<-ended
		close(free)
		synctest.Wait()
		testkit.Equal(t, errors.Join(run.Join(0, calls), calls.Stuck(0)), nil)
		testkit.Equal(t, len(late), 3)
		testkit.Equal(t, ask(func(context.Context) (string, error) { return "", nil }), nil)
	})
}
