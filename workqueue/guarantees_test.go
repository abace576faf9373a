// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// Tests for the guarantees of the package documentation. W6 and W7 are in fair_test.go and
// lane_test.go, W11 in snapshot_test.go, W12 in quiet_test.go.

func TestW1_OneHolder(t *testing.T) {
	q := newQueue(t, Options[int]{})
	var holders [4]atomic.Int32
	var deliveries atomic.Int64
	var workers, adders sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				item, ok := q.Get(ctx)
				if !ok {
					return
				}
				testkit.AtMost(t, holders[item.Key()].Add(1), 1, item.Key())
				deliveries.Add(1)
				runtime.Gosched()
				holders[item.Key()].Add(-1)
				testkit.Equal(t, item.Done(), nil, "Done failed")
			}
		})
	}
	for range 4 {
		adders.Go(func() {
			for i := range 2000 {
				q.Add(i & 3)
			}
		})
	}
	adders.Wait()
	settled(t, q.Drain(ctx))
	workers.Wait()
	testkit.AtLeast(t, deliveries.Load(), 4)
}

func TestW2_AddsBeforeTakingMerge(t *testing.T) {
	q := newQueue(t, Options[name]{})
	a := name{"x", "a"}
	q.Add(a)
	q.AddWith(a, AddOptions{Reason: Reason{Event: "Update"}})
	q.AddAll([]name{a, a, {"x", "b"}}, AddOptions{})
	wantLen(t, q, Len{Ready: 2})
	testkit.SlicesEqual(t, order(t, q), []name{a, {"x", "b"}}, "deliveries")
}

func TestW3_AddWhileHeld(t *testing.T) {
	for _, settle := range []func(Item[string]) error{
		Item[string].Done,
		func(i Item[string]) error { _, err := i.Retry(nil); return err },
		func(i Item[string]) error { return i.After(time.Hour) },
	} {
		q := newQueue(t, Options[string]{})
		q.Add("a")
		item := mustGet(t, q)
		for range 3 {
			q.Add("a")
		}
		wantLen(t, q, Len{Held: 1})
		settled(t, settle(item))
		wantLen(t, q, Len{Ready: 1})
		testkit.Len(t, order(t, q), 1, "deliveries")
		wantLen(t, q, Len{})
	}
}

func ownEvent(_ string, _ uint64, r Reason) (own bool, within time.Duration) {
	return r.Event == "own" || r.Event == "perhaps", map[string]time.Duration{"perhaps": time.Minute}[r.Event]
}

func TestW3_OwnAdds(t *testing.T) {
	retry := func(i Item[string]) error { _, err := i.RetryWith(nil, RetryOptions{NotBefore: time.Hour}); return err }
	own, other := AddOptions{Reason: Reason{Event: "own"}}, AddOptions{Reason: Reason{Event: "other"}}
	for name, test := range map[string]struct {
		held   func(q *Queue[string])
		settle func(Item[string]) error
		want   string
	}{
		"all own":           {func(q *Queue[string]) { q.AddWith("a", own); q.AddAll([]string{"a", "a"}, own) }, retry, "[]"},
		"one of others":     {func(q *Queue[string]) { q.AddWith("a", own); q.AddWith("a", other) }, retry, "[own other]"},
		"one with no":       {func(q *Queue[string]) { q.AddWith("a", own); q.Add("a") }, retry, "[own]"},
		"also by request":   {func(q *Queue[string]) { q.AddWith("a", own); q.RequeueNow("a", Reason{}) }, retry, "[own RequeueNow]"},
		"Done asks nothing": {func(q *Queue[string]) { q.AddWith("a", own) }, Item[string].Done, "[own]"},
		"nor does After":    {func(q *Queue[string]) { q.AddWith("a", own) }, func(i Item[string]) error { return i.After(time.Hour) }, "[own]"},
		"nor does Release":  {func(q *Queue[string]) { q.AddWith("a", own) }, Item[string].Release, "[add own]"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t, Options[string]{Own: ownEvent})
			q.AddWith("a", AddOptions{Reason: Reason{Event: "add"}})
			item := mustGet(t, q)
			test.held(q)
			settled(t, test.settle(item))
			k, _ := q.Lookup("a")
			testkit.Equal(t, fmt.Sprint(events(k.Reasons)), test.want, "the next delivery has the reasons")
			testkit.Equal(t, k.State == Ready, test.want != "[]", fmt.Sprintf("the key is %s", k.State))
			testkit.Len(t, q.core.adds, 0, "remembered after it was settled")
		})
	}
}

// TestW3_PerhapsOwnAdds: they deliver the key within their time, unless something else does before.
func TestW3_PerhapsOwnAdds(t *testing.T) {
	retry := func(after time.Duration) func(*Queue[string], Item[string]) {
		return func(_ *Queue[string], i Item[string]) {
			_, err := i.RetryWith(nil, RetryOptions{NotBefore: after})
			settled(t, err)
		}
	}
	giveUp := func(_ *Queue[string], i Item[string]) { settled(t, i.GiveUp(nil)) }
	perhaps := func(q *Queue[string], _ Item[string]) { q.AddWith("a", AddOptions{Reason: Reason{Event: "perhaps"}}) }
	own := func(q *Queue[string], _ Item[string]) { q.AddWith("a", AddOptions{Reason: Reason{Event: "own"}}) }
	later := func(q *Queue[string], _ Item[string]) {
		q.AddWith("a", AddOptions{After: 5 * time.Minute, Reason: Reason{Event: "later"}})
	}
	other := func(q *Queue[string], _ Item[string]) { q.Add("a") }
	type steps = []func(*Queue[string], Item[string])
	for name, test := range map[string]struct {
		steps steps
		want  string // deliveries within an hour
	}{
		"held":               {steps{perhaps, own, retry(time.Hour)}, "1m0s [perhaps Retry]"},
		"held, given up":     {steps{own, perhaps, giveUp}, "1m0s [perhaps After]"},
		"held, soon retried": {steps{perhaps, retry(time.Second)}, "1s [perhaps Retry]"},
		"held, with others":  {steps{perhaps, other, retry(30 * time.Minute)}, "0s [perhaps]"},
		"in backoff":         {steps{retry(time.Hour), own, perhaps, perhaps}, "1m0s [perhaps Retry]"},
		"soon retried":       {steps{retry(time.Second), perhaps}, "1s [perhaps Retry]"},
		"given up":           {steps{giveUp, perhaps, own}, "1m0s [perhaps After]"},
		"before others":      {steps{giveUp, perhaps, other}, "0s [perhaps]"},
		"before a timer":     {steps{giveUp, later, perhaps}, "1m0s [perhaps After] 5m0s [later]"},
		"own":                {steps{own, giveUp, own}, ""},
		"after ShutDown":     {steps{giveUp, func(q *Queue[string], _ Item[string]) { q.ShutDown() }, perhaps}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Options[string]{Own: ownEvent})
				q.Add("a")
				item := mustGet(t, q)
				for _, step := range test.steps {
					step(q, item)
				}
				var got []string
				for began := time.Now(); time.Since(began) < 50*time.Minute; time.Sleep(time.Second) {
					if item, ok := tryGet(q); ok {
						got = append(got, fmt.Sprint(time.Since(began), events(reasonsOf(item))))
						settled(t, item.Done())
					}
				}
				testkit.Equal(t, strings.Join(got, " "), test.want, "delivered at")
			})
		})
	}
}

// TestW3_OwnAddsMeanwhile: Own is also called for adds, and the item may be settled, during a call
// of Own.
func TestW3_OwnAddsMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(q *Queue[string], item Item[string])
		want      State
		err       error
	}{
		"own": {func(q *Queue[string], _ Item[string]) {
			q.AddWith("a", AddOptions{Reason: Reason{Event: "own", UID: "2"}})
		}, Waiting, nil},
		"other":   {func(q *Queue[string], _ Item[string]) { q.Add("a") }, Ready, nil},
		"request": {func(q *Queue[string], _ Item[string]) { q.RequeueNow("a", Reason{}) }, Ready, nil},
		"settled": {func(_ *Queue[string], item Item[string]) { settled(t, item.After(time.Hour)) }, Ready, ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			var q *Queue[string]
			var item Item[string]
			asked := 0
			q = newQueue(t, Options[string]{Own: func(key string, delivery uint64, r Reason) (own bool, within time.Duration) {
				if asked++; asked == 1 {
					test.meanwhile(q, item)
				}
				own, within = ownEvent(key, delivery, r)
				return own && delivery == item.Delivery(), within
			}})
			q.Add("a")
			item = mustGet(t, q)
			q.AddWith("a", AddOptions{Reason: Reason{Event: "own", UID: "1"}})
			testkit.Equal(t, testkit.Err(item.RetryWith(nil, RetryOptions{NotBefore: time.Hour})), test.err, "settled with")
			k, _ := q.Lookup("a")
			testkit.Equal(t, k.State, test.want, "the key")
		})
	}
}

// TestW3_OwnAddsTooMany: with too many adds, none counts as own.
func TestW3_OwnAddsTooMany(t *testing.T) {
	for more, want := range []State{Waiting, Ready} {
		asked := 0
		q := newQueue(t, Options[string]{Own: func(string, uint64, Reason) (bool, time.Duration) { asked++; return true, 0 }})
		q.Add("a")
		item := mustGet(t, q)
		for i := range mostAsked + more {
			q.AddWith("a", AddOptions{Reason: Reason{ResourceVersion: fmt.Sprint(i)}})
			q.AddWith("a", AddOptions{Reason: Reason{ResourceVersion: fmt.Sprint(i)}})
		}
		_, err := item.RetryWith(nil, RetryOptions{NotBefore: time.Hour})
		settled(t, err)
		k, _ := q.Lookup("a")
		testkit.Equal(t, k.State, want, fmt.Sprintf("%d too many", more), "the key")
		testkit.Equal(t, asked, mostAsked*(1-more), "asked about adds")
	}
}

func TestW4_DueTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		start := time.Now()
		at := func(want time.Duration) Item[string] {
			t.Helper()
			item, _ := q.Get(ctx)
			if got := time.Since(start); got != want {
				t.Fatalf("delivered after %v, want %v", got, want)
			}
			return item
		}
		q.AddWith("a", AddOptions{After: 3 * time.Second})
		q.AddWith("a", AddOptions{After: 2 * time.Second}) // the earliest counts
		q.AddWith("a", AddOptions{After: 4 * time.Second})
		q.Add("a")
		settled(t, at(0).After(time.Second))             // it fires after another delivery;
		settled(t, at(time.Second).After(5*time.Second)) // the key's own timer is at 6 s,
		settled(t, at(2*time.Second).Done())             // and a delivery cancels it
		wantLen(t, q, Len{})

		q.AddWith("b", AddOptions{After: time.Second})
		time.Sleep(500 * time.Millisecond)
		q.Add("b")
		item := at(2500 * time.Millisecond)
		time.Sleep(time.Second) // due while held
		wantLen(t, q, Len{Held: 1})
		settled(t, item.Done())
		wantLen(t, q, Len{Ready: 1})
		settled(t, at(3500*time.Millisecond).After(time.Hour)) // replaces the earlier After
		q.Add("b")
		settled(t, at(3500*time.Millisecond).After(2*time.Hour))
		settled(t, at(3500*time.Millisecond+2*time.Hour).Done())
	})
}

func TestW4_AddDoesNotCancelAddAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		r := q.Interface()
		r.AddAfter("a", time.Second)
		r.Add("a")
		for range 2 {
			key, _ := r.Get()
			r.Done(key)
		}
		testkit.Equal(t, r.Len(), 0)
		testkit.Equal(t, total(q), 0)
	})
}

func TestW5_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[int]{})
		q.AddWith(5, AddOptions{After: 2})
		q.AddWith(4, AddOptions{After: 1})
		q.AddWith(6, AddOptions{After: 2})
		q.Add(1)
		q.Add(2)
		time.Sleep(2 * time.Nanosecond) // no call of Get waited; 4, 5 and 6 still precede 3
		q.Add(3)
		q.Add(1)
		testkit.SlicesEqual(t, order(t, q), []int{1, 2, 4, 5, 6, 3})
	})
}

func TestW5_Class(t *testing.T) {
	q := newQueue(t, Options[string]{Classes: ThreeClasses()})
	class := func(want Class) Item[string] {
		t.Helper()
		item := mustGet(t, q)
		testkit.Equal(t, item.Class(), want, item.Key())
		return item
	}
	q.AddWith("a", AddOptions{Class: Background})
	q.AddWith("a", AddOptions{Class: Interactive})
	q.AddWith("a", AddOptions{Class: Normal}) // keeps the highest
	q.AddAll([]string{"a"}, AddOptions{Class: Normal})
	q.AddWith("a", AddOptions{Class: Normal, Reason: Reason{Source: "test"}})
	item := class(Interactive)
	q.AddWith("a", AddOptions{Class: Background}) // a new delivery starts without a class
	settled(t, item.Done())
	settled(t, class(Background).Done())

	// A raised key goes to the end of its new class.
	q.AddWith("low", AddOptions{Class: Background})
	q.AddWith("n1", AddOptions{})
	q.AddWith("low", AddOptions{})
	q.AddWith("n2", AddOptions{})
	testkit.SlicesEqual(t, order(t, q), []string{"n1", "low", "n2"})

	q.AddWith("a", AddOptions{Class: 100}) // classes that are not configured
	settled(t, class(Interactive).Done())
	q.AddWith("a", AddOptions{Class: -100})
	settled(t, class(Background).Done())
}

func TestW8_ShutDownAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		for _, key := range []string{"held", "parked", "ready", "paused"} {
			q.Add(key)
		}
		held := mustGet(t, q)
		settled(t, mustGet(t, q).Park("waits", 0))
		q.PauseKey("paused")
		q.AddWith("waiting", AddOptions{After: time.Hour})
		q.Add("held")
		wantLen(t, q, Len{Ready: 1, Waiting: 1, Held: 1, Parked: 1, Paused: 1})

		var done atomic.Int32
		var drains sync.WaitGroup
		for range 5 {
			drains.Go(func() {
				testkit.Equal(t, q.Drain(ctx), nil)
				done.Add(1)
			})
			drains.Go(q.ShutDown)
		}
		synctest.Wait()
		wantLen(t, q, Len{Ready: 1, Held: 1})
		q.Add("late")
		settled(t, mustGet(t, q).Done())
		synctest.Wait()
		testkit.Equal(t, done.Load(), 0, "Drain has returned although a key is held")
		settled(t, held.Done())
		synctest.Wait()
		testkit.Equal(t, done.Load(), 0, "Drain has returned although a key that was added while it was held is ready")
		settled(t, mustGet(t, q).Done())
		drains.Wait()
		if _, ok := q.Get(ctx); ok || done.Load() != 5 {
			t.Errorf("Get %v, %d drains have returned", ok, done.Load())
		}
		want := map[string]int{"waiting at shutdown": 1, "parked at shutdown": 1, "paused at shutdown": 1, "added after shutdown": 1}
		testkit.Equal(t, fmt.Sprint(q.Snapshot().Dropped), fmt.Sprint(want))
	})
}

func TestW8_DrainGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Name: "web"})
		q.Add("a")
		q.Add("b")
		item := mustGet(t, q)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := q.Drain(short)
		testkit.ErrorIs(t, err, context.DeadlineExceeded)
		settled(t, item.After(time.Hour)) // a key that would wait is dropped
		settled(t, mustGet(t, q).Release())
		settled(t, q.Drain(short))
	})
}

func TestW9_SettledTwice(t *testing.T) {
	q := newQueue(t, Options[string]{})
	q.Add("a")
	old := mustGet(t, q)
	settled(t, old.Done())
	for i := range 2 { // once while the key is unknown, once while another delivery holds it
		for what, err := range settleAll(old) {
			testkit.ErrorIs(t, err, ErrNotHeld, i, fmt.Sprintf("%s of an item that is settled returned", what))
		}
		if i == 0 {
			wantLen(t, q, Len{})
			q.Add("a")
			mustGet(t, q)
		}
	}
	wantLen(t, q, Len{Held: 1})
	testkit.Equal(t, q.Snapshot().Misused, 12, "misuses were counted")
	q.Interface().Done("unknown")
	wantLen(t, q, Len{Held: 1})
	for what, err := range settleAll(Item[string]{}) {
		testkit.ErrorIs(t, err, ErrNotHeld, fmt.Sprintf("%s of the zero item returned", what))
	}
}

func settleAll(i Item[string]) map[string]error {
	_, retry := i.Retry(nil)
	_, notBefore := i.RetryWith(nil, RetryOptions{NotBefore: 1})
	return map[string]error{"Done": i.Done(), "Retry": retry, "RetryNotBefore": notBefore,
		"After": i.After(1), "Park": i.Park("", 1), "Release": i.Release()}
}

func TestW10_NoGoroutine(t *testing.T) {
	byQueue := regexp.MustCompile(`created by \S+/workqueue\.(New|\(\*)`) // not by a test
	none := func() {
		t.Helper()
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		testkit.Equal(t, byQueue.Match(stacks), false, "the queue has started a goroutine", stacks)
	}
	synctest.Test(t, func(t *testing.T) { // a bubble ends only after its goroutines
		q := newQueue(t, Options[string]{MinInterval: time.Second})
		q.Add("a")
		q.AddWith("b", AddOptions{After: time.Second})
		none()
		var taken atomic.Int32
		waiting, cancel := context.WithCancel(ctx)
		for range 3 { // two get a key when it is due, one gets none
			go func() {
				if _, ok := q.Get(waiting); ok {
					taken.Add(1)
				}
			}()
		}
		synctest.Wait()
		none()
		time.Sleep(time.Second)
		synctest.Wait()
		testkit.Equal(t, taken.Load(), 2, "keys were taken")
		none()
		cancel()
		q.AddWith("c", AddOptions{After: time.Hour}) // a queue can be abandoned without ShutDown
	})
}
