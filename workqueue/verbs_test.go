// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func events(rs []Reason) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Event)
	}
	return out
}

func TestPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Classes: ThreeClasses()})
		q.AddWith("a", AddOptions{Class: Interactive, Reason: Reason{Event: "Update"}})
		_, err := mustGet(t, q).Retry(nil)
		settled(t, err)
		q.AddWith("a", AddOptions{Class: Interactive, Reason: Reason{Event: "Create"}})
		settled(t, mustGet(t, q).Park("cache is behind", 0))
		// Does not wake a.
		q.AddWith("a", AddOptions{Class: Background, Reason: Reason{Event: "Update"}})
		time.Sleep(time.Hour)
		wantLen(t, q, Len{Parked: 1})
		k, _ := q.Lookup("a")
		testkit.Equal(t, k.ParkReason, "cache is behind", "parked because")
		testkit.Equal(t, q.Wake("a"), true)
		testkit.Equal(t, q.Wake("a"), false)
		testkit.Equal(t, q.Wake("b"), false)
		item := mustGet(t, q)
		testkit.Equal(t, item.Class(), Interactive)
		testkit.Equal(t, item.Attempt(), 2)
		testkit.Equal(t, fmt.Sprint(events(reasonsOf(item))), "[Create Update Woken]")

		start := time.Now()
		settled(t, item.Park("again", time.Minute)) // bounded
		item, _ = q.Get(ctx)
		if r := reasonsOf(item); time.Since(start) != time.Minute || r[len(r)-1].Event != EventParkExpired {
			t.Errorf("after %v: %v", time.Since(start), r)
		}
		testkit.Equal(t, q.Wake("a"), true, "a wake of a held key is not remembered")
		settled(t, item.Park("too late", 0))
		settled(t, mustGet(t, q).Done())
		wantLen(t, q, Len{})
	})
}

func TestRelease(t *testing.T) {
	q := newQueue(t, Options[string]{})
	q.AddWith("a", AddOptions{Reason: Reason{Event: "Update"}})
	q.Add("b")
	settled(t, mustGet(t, q).Release())
	settled(t, mustGet(t, q).Done()) // b: a is at the end
	item := mustGet(t, q)
	testkit.Equal(t, item.Attempt(), 1)
	testkit.Equal(t, fmt.Sprint(events(reasonsOf(item))), "[Update]", reasonsOf(item))
	q.ShutDown()
	settled(t, item.Release())
	settled(t, q.Drain(ctx))
	testkit.Equal(t, q.Snapshot().Dropped["waiting at shutdown"], 1)
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		q.Add("ready")
		q.AddWith("waiting", AddOptions{After: time.Second})
		for _, key := range []string{"ready", "waiting", "unknown"} {
			q.PauseKey(key)
		}
		wantLen(t, q, Len{Paused: 3})
		time.Sleep(time.Minute)
		q.Add("unknown")
		wantLen(t, q, Len{Paused: 3})
		for _, key := range []string{"unknown", "ready", "waiting", "never seen"} {
			q.ResumeKey(key)
		}
		testkit.SlicesEqual(t, order(t, q), []string{"unknown", "ready", "waiting"})

		q.Add("held")
		item := mustGet(t, q)
		q.PauseKey("held")
		wantLen(t, q, Len{Held: 1})
		settled(t, item.After(time.Hour))
		wantLen(t, q, Len{Paused: 1})
		q.ResumeKey("held")
		wantLen(t, q, Len{Waiting: 1}) // its timer goes on

		q.PauseKey("idle")
		q.ResumeKey("idle")
		wantLen(t, q, Len{Waiting: 1})
	})
}

func TestPause_AllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		got := make(chan string, 3)
		for range 3 {
			go func() {
				item, _ := q.Get(ctx)
				got <- item.Key()
			}()
		}
		testkit.Equal(t, q.Len().AllPaused, false, "paused before Pause")
		q.Pause()
		q.AddAll([]string{"a", "b"}, AddOptions{})
		q.AddWith("c", AddOptions{After: time.Second})
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLen(t, q, Len{Ready: 3})
		if _, ok := tryGet(q); ok || len(got) != 0 || !q.Snapshot().Paused || !q.Len().AllPaused {
			t.Errorf("%d deliveries while all is paused", len(got))
		}
		q.Resume()
		synctest.Wait()
		wantLen(t, q, Len{Held: 3})

		q.Pause()
		q.Add("d")
		q.Add("a")
		q.ShutDown() // d is never taken
		wantLen(t, q, Len{Held: 3})
		q.Resume()
		q.PauseKey("a")
		for range 3 {
			key := <-got
			q.Interface().Done(key)
		}
		settled(t, q.Drain(ctx))
		testkit.Equal(t, q.Snapshot().Dropped["paused at shutdown"], 2)
	})
}

func TestRequeueNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Classes: ThreeClasses(), MinInterval: time.Minute})
		now := func(key string) Item[string] {
			t.Helper()
			q.RequeueNow(key, Reason{})
			item := mustGet(t, q)
			testkit.Equal(t, item.Key(), key)
			testkit.Equal(t, item.Class(), Interactive)
			return item
		}
		item := now("unknown")
		_, err := item.RetryWith(nil, RetryOptions{NotBefore: time.Hour})
		settled(t, err)
		item = now("unknown")
		testkit.Equal(t, item.Attempt(), 2)
		settled(t, item.Park("", 0))
		item = now("unknown")
		q.RequeueNow("unknown", Reason{}) // held: once more, however it is settled
		settled(t, item.Park("", 0))
		item = mustGet(t, q)
		settled(t, item.Done())
		q.Add("debounced")
		wantLen(t, q, Len{Waiting: 1})
		settled(t, now("debounced").Done())
		q.PauseKey("paused")
		q.RequeueNow("paused", Reason{})
		wantLen(t, q, Len{Paused: 1})
		q.ResumeKey("paused")
		settled(t, mustGet(t, q).Done())
		wantLen(t, q, Len{})
	})
}

func TestMinInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{MinInterval: 10 * time.Second, MaxWait: 25 * time.Second})
		start := time.Now()
		at := func(want time.Duration) Item[string] {
			t.Helper()
			item, _ := q.Get(ctx)
			if got := time.Since(start); got != want*time.Second {
				t.Fatalf("delivered after %v, want %v s", got, int(want))
			}
			return item
		}
		q.Add("a")
		time.Sleep(4 * time.Second)
		q.Add("a") // postpones it
		settled(t, at(14).Done())

		for range 6 { // 14, 19, ... 39: but to 39 at most
			q.Add("a")
			time.Sleep(5 * time.Second)
		}
		item := at(44)
		testkit.Equal(t, item.Queued().Sub(start), 39*time.Second, "ready after")
		q.Add("a") // while held: the interval counts from here
		time.Sleep(4 * time.Second)
		settled(t, item.Done())
		settled(t, at(54).After(time.Second)) // its own timers are not delayed
		settled(t, at(55).Done())
		wantLen(t, q, Len{})

		fixed := newQueue(t, Options[string]{MinInterval: 10 * time.Second})
		fixed.Add("a")
		time.Sleep(9 * time.Second)
		fixed.Add("a") // without MaxWait, adds postpone nothing
		time.Sleep(time.Second)
		wantLen(t, fixed, Len{Ready: 1})
	})
}

func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			keep, adds int
			want       string
			dropped    int
		}{{0, 20, "[0 12 13 14 15 16 17 18 19]", 11}, {1, 3, "[0 2]", 1}, {2, 3, "[0 1 2]", 0}, {-1, 3, "[]", 0}} {
			q := newQueue(t, Options[string]{Reasons: test.keep})
			for i := range test.adds {
				q.AddWith("a", AddOptions{Reason: Reason{Event: fmt.Sprint(i)}})
				time.Sleep(time.Second)
			}
			q.Add("a") // no reason
			item := mustGet(t, q)
			got, dropped := item.Reasons()
			testkit.Equal(t, fmt.Sprint(events(got)), test.want, fmt.Sprintf("keep %d", test.keep))
			testkit.Equal(t, dropped, test.dropped, fmt.Sprintf("keep %d", test.keep))
			if test.keep >= 0 && !got[0].At.Equal(q.core.start) {
				t.Errorf("first reason is of %v, want %v", got[0].At, q.core.start)
			}
			newest := q.core.start.Add(time.Duration(test.adds-1) * time.Second)
			if test.keep >= 0 && !got[len(got)-1].At.Equal(newest) {
				t.Errorf("newest reason is of %v, want %v", got[len(got)-1].At, newest)
			}
			q.AddWith("a", AddOptions{Reason: Reason{Event: "next"}, After: time.Second})
			testkit.Equal(t, fmt.Sprint(events(reasonsOf(item))), test.want, "reasons have changed", reasonsOf(item))
			settled(t, item.Done())
			if reasonsOf(item) != nil {
				t.Error("a settled item has reasons")
			}
		}
	})
}

// TestSinceWhen: Reasons and Hook decide which times are known.
func TestSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, o := range map[string]Options[string]{
			"queued, ready":       {},
			"nothing":             {Reasons: -1},
			"queued, ready, held": {Reasons: -1, Hook: hook.New(func(hook.Event) {})},
		} {
			q := newQueue(t, o)
			time.Sleep(time.Second)
			now := time.Now()
			q.Add("a")
			ready, _ := q.Lookup("a")
			item := mustGet(t, q)
			held, _ := q.Lookup("a")
			got := "nothing"
			switch {
			case held.Since.Equal(now) && ready.Since.Equal(now) && item.Queued().Equal(now):
				got = "queued, ready, held"
			case held.Since.IsZero() && ready.Since.Equal(now) && item.Queued().Equal(now):
				got = "queued, ready"
			case !held.Since.IsZero() || !ready.Since.IsZero() || !item.Queued().IsZero():
				got = "nonsense"
			}
			testkit.Equal(t, got, want, "known")
		}
	})
}

// TestReasonOfDelay: the reason of a delayed add belongs to the delivery after the delay.
func TestReasonOfDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		q.AddWith("a", AddOptions{After: time.Second, Reason: Reason{Event: "later"}})
		q.AddWith("a", AddOptions{Reason: Reason{Event: "now"}})
		for _, want := range []string{"[now]", "[later]"} {
			item, _ := q.Get(ctx)
			testkit.Equal(t, fmt.Sprint(events(reasonsOf(item))), want)
			settled(t, item.Done())
		}
	})
}

func TestOwn_InBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q *Queue[string]
		own := func(key string, delivery uint64, r Reason) (bool, time.Duration) {
			testkit.NotEqual(t, total(q), 0) // it may use the queue
			return r.Source == "own", 0
		}
		q = newQueue(t, Options[string]{Own: own, Backoff: Exponential{Base: time.Hour}})
		q.AddWith("a", AddOptions{Reason: Reason{Source: "own"}}) // not in backoff
		_, err := mustGet(t, q).Retry(nil)
		settled(t, err)
		q.AddWith("a", AddOptions{Reason: Reason{Source: "own"}})
		q.AddAll([]string{"a"}, AddOptions{Reason: Reason{Source: "own"}})
		wantLen(t, q, Len{Waiting: 1})
		q.AddAll([]string{"a", "b"}, AddOptions{Reason: Reason{Source: "other"}})
		wantLen(t, q, Len{Ready: 2})
	})
}

// TestOwn_AsksAgain: the key is delivered again during a call of Own.
func TestOwn_AsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q *Queue[string]
		var asked []uint64
		q = newQueue(t, Options[string]{Own: func(_ string, delivery uint64, _ Reason) (bool, time.Duration) {
			asked = append(asked, delivery)
			if len(asked) == 1 {
				q.RequeueNow("a", Reason{})
				_, err := mustGet(t, q).RetryWith(nil, RetryOptions{NotBefore: time.Hour})
				settled(t, err)
			}
			return delivery == 1, 0 // own for the first delivery only
		}})
		q.Add("a")
		_, err := mustGet(t, q).RetryWith(nil, RetryOptions{NotBefore: time.Hour})
		settled(t, err)
		q.Add("a")
		wantLen(t, q, Len{Ready: 1})
		testkit.SlicesEqual(t, asked, []uint64{1, 2}, "asked about deliveries")
	})
}
