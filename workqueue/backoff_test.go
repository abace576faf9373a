// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Backoff: Exponential{Base: time.Second, Max: 3 * time.Second}})
		q.Add("a")
		for i, want := range []time.Duration{1, 2, 3, 3} {
			item, _ := q.Get(ctx)
			testkit.Equal(t, item.Attempt(), i+1)
			if d, err := item.Retry(errors.New("no")); err != nil || d != want*time.Second {
				t.Errorf("delay is %v, %v, want %v s", d, err, int(want))
			}
		}
		item, _ := q.Get(ctx)
		d, _ := item.RetryWith(nil, RetryOptions{NotBefore: time.Hour})
		testkit.Equal(t, d, time.Hour, "delay")
		item, _ = q.Get(ctx)
		settled(t, item.After(0)) // a success
		item = mustGet(t, q)
		testkit.Equal(t, item.Attempt(), 1, "attempt after a success")
		_, err := item.Retry(nil)
		settled(t, err)
		q.Forget("a")
		item, _ = q.Get(ctx)
		testkit.Equal(t, item.Attempt(), 1, "attempt after Forget")
	})
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[int]{Limiter: rate.NewLimiter(10, 2)})
		var got []time.Duration
		for key := range 4 {
			q.Add(key)
			d, err := mustGet(t, q).Retry(nil)
			settled(t, err)
			got = append(got, d.Round(time.Millisecond))
		}
		const ms = time.Millisecond
		testkit.SlicesEqual(t, got, []time.Duration{5 * ms, 5 * ms, 100 * ms, 200 * ms}, "delays")
	})
}

func TestExponential(t *testing.T) {
	for _, test := range []struct {
		e    Exponential
		n    int
		want time.Duration
	}{
		{Exponential{}, 1, 5 * time.Millisecond},
		{Exponential{}, 0, 5 * time.Millisecond},
		{Exponential{}, 18, 655360 * time.Millisecond},
		{Exponential{}, 19, 1000 * time.Second},
		{Exponential{}, 1 << 40, 1000 * time.Second},
		{Exponential{Base: time.Hour}, 5, time.Hour},
		{Exponential{Base: 1, Max: 1<<63 - 1}, 63, 1 << 62},
		{Exponential{Base: 1, Max: 1<<63 - 1}, 64, 1<<63 - 1},
		{Exponential{Base: 3, Max: 10}, 2, 6},
		{Exponential{Base: 3, Max: 10}, 3, 10},
	} {
		testkit.Equal(t, test.e.Delay(test.n), test.want, test.e, fmt.Sprintf("delay after %d failures", test.n))
	}
	jittered := Exponential{Base: time.Second, Jitter: 0.5}
	for range 100 {
		if d := jittered.Delay(1); d < time.Second/2 || d > time.Second {
			t.Errorf("jittered delay is %v", d)
		}
	}
}
