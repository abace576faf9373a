// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// The section "Bad input" of the package documentation.

func TestBadInput_Delays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			q.AddWith("a", AddOptions{After: d})
			settled(t, mustGet(t, q).After(d))
			d, err := mustGet(t, q).RetryWith(nil, RetryOptions{NotBefore: d})
			settled(t, err)
			time.Sleep(d)
			settled(t, mustGet(t, q).Park("", d))
			q.Wake("a")
			settled(t, mustGet(t, q).Done())
			wantLen(t, q, Len{})
		}
		q.AddWith("a", AddOptions{After: math.MaxInt64})
		q.Add("a")
		settled(t, mustGet(t, q).After(math.MaxInt64))
		wantLen(t, q, Len{Waiting: 1})
		time.Sleep(1000 * time.Hour)
		wantLen(t, q, Len{Waiting: 1})
		q.Add("a")
		_, err := mustGet(t, q).RetryWith(nil, RetryOptions{NotBefore: math.MaxInt64})
		settled(t, err)
		wantLen(t, q, Len{Waiting: 1})
		q.ShutDown()
		wantLen(t, q, Len{})
	})
}

type floats struct{ f float64 }

func TestBadInput_UnequalKeys(t *testing.T) {
	q := newQueue(t, Options[any]{})
	dropped := 0
	for _, key := range []any{math.NaN(), floats{math.NaN()}, [2]any{1, math.NaN()}, []int{1}, map[int]int{}} {
		q.Add(key)
		q.AddWith(key, AddOptions{After: time.Second})
		q.AddAll([]any{key, key}, AddOptions{})
		q.PauseKey(key)
		q.ResumeKey(key)
		q.RequeueNow(key, Reason{})
		q.Forget(key)
		q.Wake(key)
		q.Interface().Done(key)
		q.Interface().AddRateLimited(key)
		_, ok := q.Lookup(key)
		testkit.Equal(t, ok, false, fmt.Sprintf("%v was found", key))
		dropped += 12
	}
	q.Add(1.5)
	q.Add(floats{1})
	testkit.SlicesEqual(t, order(t, q), []any{1.5, floats{1}}, "deliveries")
	testkit.Equal(t, q.Snapshot().Dropped["not equal to itself"], dropped)
	testkit.Equal(t, total(q), 0)
}

func TestBadInput_Panics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		boom := func() { panic("boom") }
		o := Options[string]{
			Tenant:       func(string) string { boom(); return "x" },
			TenantWeight: func(string) float64 { boom(); return 5 },
			Backoff:      panicking{},
			Own:          func(string, uint64, Reason) (bool, time.Duration) { boom(); return true, 0 },
			Hook: hook.Join(
				hook.On(func(*hook.QueueOpened) { boom() }),
				hook.On(func(*hook.QueueClosed) { boom() }),
				hook.On(func(*hook.QueueAdded) { boom() }),
				hook.On(func(*hook.QueueDelayed) { boom() }),
				hook.On(func(*hook.QueueTaken) { boom() }),
				hook.On(func(*hook.QueueSettled) { boom() }),
				hook.On(func(*hook.QueueDropped) { boom() }),
				hook.On(func(*hook.QueueMisused) { boom() }),
				hook.On(func(p *hook.QueuePanicked) {
					testkit.Equal(t, p.Value, "boom")
					testkit.Contains(t, string(p.Stack), "TestBadInput_Panics")
					reported = append(reported, p.Func)
					boom()
				}),
			),
		}
		q := newQueue(t, o)
		q.Add("a")
		item := mustGet(t, q)
		q.Add("a") // Own panics: the add counts
		d, err := item.Retry(errors.New("no"))
		settled(t, err)
		testkit.Equal(t, d, 0, "delay")
		_, err = mustGet(t, q).RetryWith(nil, RetryOptions{NotBefore: time.Second})
		settled(t, err)
		q.Add("a") // again
		item = mustGet(t, q)
		settled(t, item.Done())
		_ = item.Done()
		q.AddWith("b", AddOptions{After: time.Second})
		q.ShutDown()
		settled(t, q.Drain(ctx))
		slices.Sort(reported)
		want := []string{"Backoff", "Hook(QueueAdded)", "Hook(QueueClosed)", "Hook(QueueDelayed)", "Hook(QueueDropped)",
			"Hook(QueueMisused)", "Hook(QueueOpened)", "Hook(QueueSettled)", "Hook(QueueTaken)", "Own", "Tenant"}
		testkit.SlicesEqual(t, slices.Compact(slices.Clone(reported)), want)
		testkit.Equal(t, q.Snapshot().Panics, len(reported))
	})
}

type panicking struct{}

func (panicking) Delay(int) time.Duration { panic("boom") }

func TestBadInput_Weights(t *testing.T) {
	for _, w := range []float64{0, -1, math.NaN(), math.Inf(1), 1e-7, 1e7} {
		testkit.NotEqual(t, testkit.Err(New(Options[int]{Classes: []ClassWeight{{Normal, w}}})), nil, fmt.Sprintf("a class with weight %v was accepted", w))
		weights := map[string]float64{"0": w, "1": 1} // from TenantWeight it counts as 1
		q := newQueue(t, Options[int]{
			Tenant:       func(k int) string { return string(rune('0' + k%2)) },
			TenantWeight: func(tenant string) float64 { return weights[tenant] },
		})
		q.AddAll([]int{0, 2, 4, 6, 1, 3, 5, 7}, AddOptions{})
		testkit.SlicesEqual(t, order(t, q), []int{0, 1, 2, 3, 4, 5, 6, 7}, fmt.Sprintf("weight %v", w), "order")
	}
}

func TestBadInput_ContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		q.Add("a")
		over, cancel := contextWithCancel()
		cancel()
		_, ok := q.Get(over)
		testkit.Equal(t, ok, false, "a key was taken with a context that is done")
		wantLen(t, q, Len{Ready: 1})
	})
}

// TestWakeIsPassedOn: a woken waiter whose context is done wakes another one.
func TestWakeIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[int]{})
		over, cancel := contextWithCancel()
		var taken atomic.Int32
		for _, c := range []context.Context{ctx, over} {
			go func() {
				if _, ok := q.Get(c); ok {
					taken.Add(1)
				}
			}()
			synctest.Wait()
		}
		q.lock() // as Add, but the context ends before the waiter runs
		w := q.waiters.pop(1)
		q.core.add(&who[int]{key: 1}, 0, &Reason{})
		q.core.fresh = 0
		cancel()
		w.token <- struct{}{}
		q.mu.Unlock()
		synctest.Wait()
		testkit.Equal(t, taken.Load(), 1, "the wake was lost: a key is ready, and a worker waits")
		q.ShutDown()
	})
}

// TestGetUnderCancellation does the same with many concurrent goroutines.
func TestGetUnderCancellation(t *testing.T) {
	for range 300 {
		q := newQueue(t, Options[int]{})
		over, cancel := contextWithCancel()
		var taken sync.WaitGroup
		var workers sync.WaitGroup
		taken.Add(4)
		for i := range 8 {
			c := ctx
			if i%2 == 0 {
				c = over
			}
			workers.Go(func() {
				if item, ok := q.Get(c); ok {
					taken.Done()
					_ = item.Done()
				}
			})
		}
		workers.Go(cancel)
		for k := range 4 {
			q.Add(k)
		}
		taken.Wait() // four workers are not cancelled, so all keys are taken unless a wake was lost
		q.ShutDown()
		workers.Wait()
	}
}

func TestValidate(t *testing.T) {
	for want, o := range map[string]Options[int]{
		"Classes has 9":     {Classes: make([]ClassWeight, 9)},
		"Classes[0].Weight": {Classes: []ClassWeight{{Normal, 0}}},
		"Classes[1].Class":  {Classes: []ClassWeight{{Normal, 1}, {Normal, 2}}},
		"TenantWeight":      {TenantWeight: func(string) float64 { return 1 }},
		"Backoff: Base":     {Backoff: Exponential{Base: -1}},
		"Backoff: Max":      {Backoff: Exponential{Base: 2, Max: 1}},
		"Backoff: Jitter":   {Backoff: Exponential{Jitter: math.NaN()}},
		"Limiter":           {Limiter: rate.NewLimiter(1, 0)},
		"MinInterval":       {MinInterval: -1},
		"MaxWait is 1ns":    {MinInterval: 2, MaxWait: 1},
		"MaxWait is set":    {MaxWait: 1},
		"Reasons":           {Reasons: maxReasons + 1},
	} {
		o.Name = "web"
		testkit.ErrorContains(t, testkit.Err(New(o)), `workqueue "web": `+want)
	}
	for _, o := range []Options[int]{
		{}, {Classes: ThreeClasses(), MinInterval: 1, MaxWait: 1, Reasons: -5},
		{Limiter: rate.NewLimiter(rate.Inf, 0)}, {Backoff: Exponential{Base: time.Hour}},
	} {
		testkit.Equal(t, o.Validate(), nil)
	}
}
