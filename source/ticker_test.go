// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestTicker: it polls at once, and then at the interval, give or take a tenth.
func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		src, q := source.Ticker("buckets", time.Minute, func(context.Context) ([]string, error) {
			at = append(at, time.Now())
			return []string{fmt.Sprint(len(at))}, nil
		}), &keys{}
		testkit.Equal(t, src.Status().State().String(), "Ticker(buckets): not started", "before")
		testkit.NotEqual(t, src.Status().Stale(), nil, "before")
		began := time.Now()
		stop := run(t, src, q, nil)
		testkit.Equal(t, errors.Join(src.Status().WaitForSync(t.Context()), src.Status().Settled(t.Context()), src.Status().Stale()), nil)
		time.Sleep(time.Hour)
		stop()
		testkit.Equal(t, at[0].Sub(began), 0)
		if n := len(at); n < 54 || n > 67 || q.take() == "" {
			t.Errorf("%d polls in an hour", n)
		}
		varied := false
		for i := range at[1:] {
			pause := at[i+1].Sub(at[i])
			testkit.Between(t, pause, 54*time.Second, 66*time.Second)
			varied = varied || pause != time.Minute
		}
		testkit.Equal(t, varied, true, "no jitter")
		want := workqueue.Reason{Source: "Ticker(buckets)", Event: "poll"}
		testkit.Equal(t, q.how[0].Class, workqueue.Background)
		testkit.Equal(t, q.how[1].Class, workqueue.Normal)
		testkit.Equal(t, q.how[1].Reason, want)
		testkit.Equal(t, src.Status().State().String(), "Ticker(buckets): stopped", "after")
		testkit.NotEqual(t, src.Status().Stale(), nil, "after")
		testkit.NotEqual(t, src.Run(t.Context(), source.Sink[string]{Queue: q}), nil, "it ran twice")
	})
}

// TestTickerRetries: a poll that fails or panics is retried with backoff. The source is settled,
// and reports the reason why it is stale.
func TestTickerRetries(t *testing.T) {
	for what, fail := range map[string]func() ([]string, error){
		"error": func() ([]string, error) { return []string{"wrong"}, errors.New("broken") },
		"panic": func() ([]string, error) { panic("broken") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Duration
				began, until := time.Now(), time.Minute
				src, q := source.Ticker("buckets", 10*time.Second, func(context.Context) ([]string, error) {
					at = append(at, time.Since(began))
					if time.Since(began) < until {
						return fail()
					}
					return []string{"right"}, nil
				}), &keys{}
				told := 0
				stop := run(t, src, q, hook.On(func(f *hook.PollFailed) {
					told++
					testkit.Equal(t, f.Source, "Ticker(buckets)")
					testkit.ErrorContains(t, f.Err, "broken")
				}))
				defer stop()
				testkit.Equal(t, src.Status().Settled(t.Context()), nil)
				testkit.Equal(t, src.Status().State().Phase, hook.Failing)
				testkit.HasPrefix(t, src.Status().State().String(), "Ticker(buckets): failing: the last 1 polls failed: ")
				testkit.NotEqual(t, src.Status().Stale(), nil)
				if err := src.Status().WaitForSync(t.Context()); err != nil || time.Since(began) < until {
					t.Errorf("synced after %s: %v", time.Since(began), err)
				}
				synctest.Wait()
				if src.Status().Stale() != nil || src.Status().State().Phase != hook.Synced || q.take() != "right" || told != len(at)-1 {
					t.Errorf("%v, %s, told %d of %v", src.Status().Stale(), src.Status().State(), told, at)
				}
				want := []time.Duration{0, 1, 3, 7, 15, 25, 35, 45, 55, 65}
				for i, d := range at {
					if d != want[i]*time.Second {
						t.Errorf("tried after %v", at)
						break
					}
				}
			})
		})
	}
}

// TestTickerDoesNotOverlap: ticks that come during a poll are skipped and counted.
func TestTickerDoesNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Time
		running := 0
		src, q := source.Ticker("buckets", time.Minute, func(ctx context.Context) ([]string, error) {
			begun = append(begun, time.Now())
			if running++; running > 1 {
				t.Error("two polls at once")
			}
			defer func() { running-- }()
			select {
			case <-time.After(150 * time.Second):
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		}), &keys{}
		told := 0
		stop := run(t, src, q, hook.On(func(*hook.SourceDropped) { told++ }))
		testkit.NotEqual(t, src.Status().Stale(), nil, "while the first poll runs")
		testkit.Equal(t, src.Status().State().Phase, hook.Syncing, "while the first poll runs")
		time.Sleep(10*time.Minute + time.Second)
		at := time.Now()
		stop() // does not wait for the interval, nor for the poll
		testkit.Equal(t, src.Status().State().Dropped["the poll before was still running"], int64(told))
		testkit.Len(t, begun, 4)
		testkit.Equal(t, told, 6)
		testkit.Equal(t, time.Since(at), 0)
	})
}

func TestTickerValidate(t *testing.T) {
	poll := func(context.Context) ([]string, error) { return nil, nil }
	for want, src := range map[string]source.Source[string]{
		"":             source.Ticker("buckets", time.Second, poll),
		"name":         source.Ticker("", time.Second, poll),
		"at least 1ms": source.Ticker("buckets", 0, poll),
		"function":     source.Ticker[string]("buckets", time.Second, nil),
	} {
		if err := validate(src); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
