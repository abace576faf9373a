// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/slab"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestHooks checks the input of the seven standard workqueue metrics.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		var stats func() hook.QueueStats
		note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
		wrong := errors.New("no")
		q := newQueue(t, Options[string]{Name: "web", Classes: ThreeClasses(), Hook: hook.Join(
			hook.On(func(e *hook.QueueOpened) { stats = e.Stats; note("opened %s", e.Queue) }),
			hook.On(func(e *hook.QueueClosed) { note("closed %s", e.Queue) }),
			hook.On(func(e *hook.QueueAdded) { note("added %d of %d", e.Keys, e.Class) }),
			hook.On(func(e *hook.QueueDelayed) { note("delayed %v of %d", e.Delay, e.Class) }),
			hook.On(func(e *hook.QueueTaken) { note("taken after %v, attempt %d, %d", e.Waited, e.Attempt, e.Class) }),
			hook.On(func(e *hook.QueueSettled) {
				note("%v after %v, delay %v, attempt %d, error %v", e.Outcome, e.Held, e.Delay, e.Attempt, e.Err)
			}),
			hook.On(func(e *hook.QueueDropped) { note("dropped %d %s", e.Keys, e.Why) }),
			hook.On(func(e *hook.QueueMisused) { note("misused %s", e.What) }),
		)})
		want := func(lines ...string) {
			t.Helper()
			testkit.Equal(t, fmt.Sprint(log), fmt.Sprint(lines), "hooks saw")
			log = nil
		}
		want("opened web")
		q.Add("a")
		q.Add("a")
		q.AddAll([]string{"b", "c"}, AddOptions{Class: Background})
		want("added 1 of 0", "added 2 of -1")
		q.AddWith("d", AddOptions{After: time.Second})
		want("delayed 1s of 0")
		time.Sleep(2 * time.Second)
		item := mustGet(t, q) // d has become ready
		want("added 1 of 0", "taken after 2s, attempt 1, 0")
		time.Sleep(time.Second)
		other := mustGet(t, q)
		s := stats()
		if s.Ready != 2 || s.Held != 2 || !maps.Equal(s.ReadyByClass, map[int]int{1: 0, 0: 1, -1: 1}) || s.Longest != time.Second || s.Unfinished != time.Second {
			t.Errorf("stats are %+v", s)
		}
		testkit.DeepEqual(t, q.ReadyByClass(), map[Class]int{Interactive: 0, Normal: 1, Background: 1}, "ready by class")
		time.Sleep(time.Second)
		if s := stats(); s.Longest != 2*time.Second || s.Unfinished != 3*time.Second {
			t.Errorf("stats are %+v", s)
		}
		log = nil
		_, err := item.Retry(wrong)
		settled(t, err)
		settled(t, other.Done())
		want("Retry after 2s, delay 5ms, attempt 1, error no", "Done after 1s, delay 0s, attempt 1, error <nil>")
		_ = item.Done()
		want("misused Done of an item that is not held")
		if s := stats(); s.Unfinished != 0 || s.Longest != 0 || s.Waiting != 1 {
			t.Errorf("stats are %+v", s)
		}
		q.ShutDown()
		q.Add("e")
		q.ShutDown()
		want("dropped 1 waiting at shutdown", "closed web", "dropped 1 added after shutdown")
	})
}

// TestHooks_WithoutReasons: the queue knows the times for the hooks.
func TestHooks_WithoutReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited time.Duration
		q := newQueue(t, Options[string]{Reasons: -1, Hook: hook.On(func(e *hook.QueueTaken) { waited = e.Waited })})
		q.Add("a")
		added := time.Now()
		time.Sleep(time.Second)
		k, _ := q.Lookup("a")
		testkit.Equal(t, k.Since.Equal(added), true, fmt.Sprintf("ready since %v, want %v", k.Since, added))
		testkit.Equal(t, mustGet(t, q).Queued().Sub(added), 0)
		testkit.Equal(t, waited, time.Second)
	})
}

// TestHooks_PanicOfOpened: a panic of Opened is reported to the same hooks.
func TestHooks_PanicOfOpened(t *testing.T) {
	var told []string
	q := newQueue(t, Options[string]{Hook: hook.Join(
		hook.On(func(*hook.QueueOpened) { panic("no") }),
		hook.On(func(e *hook.QueuePanicked) { told = append(told, e.Func) }),
	)})
	q.Add("a")
	testkit.SlicesEqual(t, told, []string{"Hook(QueueOpened)"})
	testkit.Equal(t, q.Snapshot().Panics, 1)
}

// TestHooks_APanicDoesNotHideEvents: if a hook panics, later hooks still see the event.
func TestHooks_APanicDoesNotHideEvents(t *testing.T) {
	var told []string
	panics, notes := hook.Join(
		hook.On(func(*hook.QueueAdded) { panic("no") }),
		hook.On(func(*hook.QueueClosed) { panic("no") }),
		hook.On(func(*hook.QueuePanicked) { panic("no") }),
	), hook.Join(
		hook.On(func(*hook.QueueAdded) { told = append(told, "added") }),
		hook.On(func(*hook.QueueClosed) { told = append(told, "closed") }),
		hook.On(func(e *hook.QueuePanicked) { told = append(told, "panic of "+e.Func) }),
	)
	q := newQueue(t, Options[string]{Hook: hook.Join(panics, notes)})
	q.Add("a")
	q.ShutDown()
	testkit.SlicesEqual(t, told, []string{"added", "panic of Hook(QueueAdded)", "closed", "panic of Hook(QueueClosed)"})
}

// TestHooks_Concurrently compares the counts of the hooks after many goroutines have added, taken
// and settled keys. Run it with -race.
func TestHooks_Concurrently(t *testing.T) {
	for _, reasons := range []int{0, -1} {
		var opened, closed, added, taken, settles atomic.Int64
		long := func(d time.Duration) {
			testkit.AtLeast(t, d, 0)
			testkit.AtMost(t, d, time.Minute)
		}
		q := newQueue(t, Options[int]{Reasons: reasons, Classes: ThreeClasses(), Hook: hook.Join(
			hook.On(func(*hook.QueueOpened) { opened.Add(1) }),
			hook.On(func(*hook.QueueClosed) { closed.Add(1) }),
			hook.On(func(e *hook.QueueAdded) { added.Add(int64(e.Keys)) }),
			hook.On(func(e *hook.QueueTaken) { taken.Add(1); long(e.Waited) }),
			hook.On(func(e *hook.QueueSettled) { settles.Add(1); long(e.Held) }),
		)})
		var workers, others sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for {
					item, more := q.Get(ctx)
					if !more {
						return
					}
					if item.Key()%5 == 0 && item.Attempt() < 3 {
						_, _ = item.RetryWith(nil, RetryOptions{Exactly: 1})
					} else {
						_ = item.Done()
					}
				}
			})
		}
		for n := range 4 {
			others.Go(func() {
				for i := range 2000 {
					q.AddWith(n*i%50, AddOptions{Class: Class(i % 3), After: time.Duration(i%2) * time.Microsecond})
				}
			})
		}
		others.Wait()
		settled(t, q.Drain(ctx))
		workers.Wait()
		n := int64(q.core.deliveries)
		if opened.Load() != 1 || closed.Load() != 1 || added.Load() != n || taken.Load() != n || settles.Load() != n {
			t.Errorf("of %d deliveries, the hooks saw %d added, %d taken, %d settled; opened %d times, closed %d times",
				n, added.Load(), taken.Load(), settles.Load(), opened.Load(), closed.Load())
		}
	}
}

// TestHooksMayUseTheQueue: hooks are not called under the lock.
func TestHooksMayUseTheQueue(t *testing.T) {
	var q *Queue[string]
	calls := 0
	use := func() {
		if calls++; q != nil && calls < 100 {
			q.Add("other")
			q.Len()
		}
	}
	q = newQueue(t, Options[string]{
		Tenant: func(k string) string { return "" }, Backoff: using(use), Own: func(string, uint64, Reason) (bool, time.Duration) { use(); return false, 0 },
		Hook: hook.Join(
			hook.On(func(*hook.QueueAdded) { use() }),
			hook.On(func(*hook.QueueTaken) { use() }),
			hook.On(func(*hook.QueueSettled) { use() }),
			hook.On(func(*hook.QueueDelayed) { use() }),
			hook.On(func(*hook.QueueDropped) { use() }),
			hook.On(func(*hook.QueueClosed) { use() }),
			hook.On(func(*hook.QueueMisused) { use() }),
		),
	})
	q.Add("a")
	item := mustGet(t, q)
	q.Add("a")
	q.AddWith("b", AddOptions{After: time.Hour})
	_, err := item.Retry(nil)
	settled(t, err)
	_ = item.Done()
	order(t, q)
	settled(t, q.Drain(ctx))
	testkit.AtLeast(t, calls, 10)
}

type using func()

func (u using) Delay(int) time.Duration { u(); return 0 }

// TestNoAllocation: a queue that has enough memory does not allocate.
func TestNoAllocation(t *testing.T) {
	keys := benchKeys(8)
	o := everything()
	o.Backoff = Exponential{Base: 1, Max: 1}
	for which, o := range map[string]Options[name]{"plain": {}, "everything": o} {
		q := newQueue(t, o)
		cycle := func() {
			for _, k := range keys {
				q.AddWith(k, benchHow)
				q.AddWith(k, benchHow)
				q.AddWith(k, AddOptions{After: 1})
			}
			for i := 0; i < 3*len(keys) && total(q) > 0; i++ {
				item, _ := q.Get(ctx)
				switch i % 3 {
				case 0:
					_, _ = item.Retry(nil)
				case 1:
					_ = item.After(1)
				default:
					_ = item.Done()
				}
			}
			for total(q) > 0 {
				item, _ := q.Get(ctx)
				_ = item.Done()
			}
		}
		for range 5 {
			cycle()
		}
		testkit.Equal(t, testing.AllocsPerRun(5, cycle), 0, which)
	}
}

// TestMemory_EmptyAfterABurst: an empty queue has freed the memory of an initial list.
func TestMemory_EmptyAfterABurst(t *testing.T) {
	q := newQueue(t, Options[int]{})
	for k := range keptEntries {
		q.Add(k)
	}
	for range keptEntries {
		settled(t, mustGet(t, q).Done())
	}
	testkit.Equal(t, q.core.entries.End(), 0, "an empty queue keeps room for entries")
}

// TestMemory: the memory of a key is reused, and freed after a peak.
func TestMemory(t *testing.T) {
	q := newQueue(t, Options[int]{Backoff: Exponential{Base: 1, Max: 1}})
	fill := func(n int) {
		for k := range n {
			q.AddWith(k, benchHow)
			if k%2 == 0 {
				q.AddWith(k, AddOptions{After: time.Hour, Reason: benchHow.Reason})
			}
		}
	}
	fill(10_000)
	used := q.core.entries.End()
	for range 10_000 {
		settled(t, mustGet(t, q).Done())
	}
	wantLen(t, q, Len{Waiting: 5000})
	fill(10_000)
	testkit.Equal(t, q.core.entries.End(), used, fmt.Sprintf("room for entries, there was enough with %d", used))
	fail := func(n int) { // keys that fail and then succeed
		for k := range n {
			q.Add(-k - 1)
			item := mustGet(t, q)
			_, err := item.Retry(nil)
			settled(t, err)
			item, _ = q.Get(ctx)
			settled(t, item.Done())
		}
	}
	order(t, q)
	fail(20_000)
	testkit.Equal(t, q.core.entries.End(), used, fmt.Sprintf("room for entries after many keys have come and gone, %d were enough", used))

	q = newQueue(t, Options[int]{})
	for k := range 100_000 {
		q.Add(k)
	}
	order(t, q)
	q.Add(1)
	order(t, q)
	q.Add(1)
	testkit.AtMost(t, q.core.entries.End(), slab.ChunkLen)
	testkit.Len(t, order(t, q), 1, "deliveries")
}
