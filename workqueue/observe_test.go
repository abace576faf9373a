// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// TestObserve_CountsDueKeysOnce: a key that is due at the call, but not ready yet, is added once.
func TestObserve_CountsDueKeysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := 0, 0
		q := newQueue(t, Options[string]{Hooks: &hook.Queue{Added: func(e hook.QueueAdded) { first += e.Keys }}})
		q.AddWith("due", AddOptions{After: time.Second})
		q.Add("ready")
		time.Sleep(2 * time.Second)
		q.Observe(&hook.Queue{Added: func(e hook.QueueAdded) { second += e.Keys }})
		wantLen(t, q, Len{Ready: 2})
		if first != 2 || second != 2 {
			t.Errorf("of 2 keys the first hooks saw %d, the second %d", first, second)
		}
	})
}

// TestObserve_SameHooksTwice: hooks that observe the queue already are not added again.
func TestObserve_SameHooksTwice(t *testing.T) {
	opened, added := 0, 0
	h := &hook.Queue{Opened: func(hook.QueueOpened) { opened++ }, Added: func(e hook.QueueAdded) { added += e.Keys }}
	q := newQueue(t, Options[string]{Hooks: h})
	q.Add("a")
	q.Observe(h)
	q.Add("b")
	q.Observe(&hook.Queue{})
	q.Observe(h)
	if opened != 1 || added != 2 {
		t.Errorf("opened %d times, %d keys added; want 1 and 2", opened, added)
	}
}

// TestObserve_AfterShutDown: hooks that are added late are told the end, too.
func TestObserve_AfterShutDown(t *testing.T) {
	q := newQueue(t, Options[string]{})
	q.Add("a")
	q.ShutDown()
	var told []string
	q.Observe(&hook.Queue{
		Opened: func(hook.QueueOpened) { told = append(told, "opened") },
		Added:  func(hook.QueueAdded) { told = append(told, "added") },
		Closed: func(e hook.QueueClosed) {
			if e.Of != q {
				t.Error("another queue was closed")
			}
			told = append(told, "closed")
		},
	})
	q.ShutDown()
	if want := []string{"opened", "added", "closed"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestObserve_OpenedComesBeforeClosed: Closed is called once, after Opened, however a ShutDown on
// another goroutine interferes.
func TestObserve_OpenedComesBeforeClosed(t *testing.T) {
	q := newQueue(t, Options[string]{})
	var opened, closed atomic.Int64
	q.Observe(&hook.Queue{
		Opened: func(hook.QueueOpened) {
			var other sync.WaitGroup
			other.Go(q.ShutDown)
			other.Wait()
			if closed.Load() > 0 {
				t.Error("closed before it was opened")
			}
			opened.Add(1)
		},
		Closed: func(hook.QueueClosed) { closed.Add(1) },
	})
	if opened.Load() != 1 || closed.Load() != 1 {
		t.Errorf("opened %d times, closed %d times", opened.Load(), closed.Load())
	}
}

// TestObserve_WithoutReasons: times before the call are unknown, because the queue did not read the
// clock. They count from the call.
func TestObserve_WithoutReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		q := newQueue(t, Options[string]{Reasons: -1})
		time.Sleep(time.Hour)
		q.Add("held")
		held := mustGet(t, q)
		q.Add("ready")
		var waited time.Duration
		now := time.Now()
		q.Observe(&hook.Queue{Taken: func(e hook.QueueTaken) { waited = e.Waited }})
		time.Sleep(time.Second)
		if k, _ := q.Lookup("ready"); !k.Since.Equal(now) {
			t.Errorf("ready since %v, want %v", k.Since, now)
		}
		item := mustGet(t, q)
		if waited != time.Second {
			t.Errorf("waited %v, want 1s", waited)
		}
		if !item.Queued().Equal(now) {
			t.Errorf("queued at %v, want %v", item.Queued(), now)
		}
		if !held.Queued().IsZero() {
			t.Errorf("the key that was held already was queued at %v, want zero", held.Queued())
		}
	})
}

// TestObserve_WhileAWorkerReadsItsItem has no data race. Run it with -race.
func TestObserve_WhileAWorkerReadsItsItem(t *testing.T) {
	for range 100 {
		q := newQueue(t, Options[string]{Reasons: -1})
		q.Add("a")
		item := mustGet(t, q)
		var other sync.WaitGroup
		other.Go(func() { q.Observe(&hook.Queue{}) })
		if !item.Queued().IsZero() {
			t.Fatalf("queued at %v, want zero", item.Queued())
		}
		other.Wait()
	}
}

// TestObserve_PanicOfOpened: a panic of Opened is reported to the same hooks.
func TestObserve_PanicOfOpened(t *testing.T) {
	q := newQueue(t, Options[string]{})
	var told []string
	q.Observe(&hook.Queue{
		Opened:   func(hook.QueueOpened) { panic("no") },
		Panicked: func(e hook.QueuePanicked) { told = append(told, e.Func) },
	})
	q.Add("a")
	if want := []string{"Hooks.Opened"}; !slices.Equal(told, want) || q.Snapshot().Panics != 1 {
		t.Errorf("told %q of %d panics, want %q", told, q.Snapshot().Panics, want)
	}
}

// TestObserve_Concurrently adds hooks while other goroutines add, take and settle keys. Then it
// compares the counts of all hooks. Run it with -race.
func TestObserve_Concurrently(t *testing.T) {
	for _, reasons := range []int{0, -1} {
		var mu sync.Mutex
		type counts struct{ added, taken, settled, opened, closed int }
		var all []*counts
		observer := func() *hook.Queue {
			c := &counts{}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, c)
			count := func(what *int, n int) {
				mu.Lock()
				defer mu.Unlock()
				*what += n
			}
			long := func(d time.Duration) {
				if d < 0 || d > time.Minute {
					t.Errorf("a time is %v", d)
				}
			}
			return &hook.Queue{
				Opened: func(e hook.QueueOpened) {
					count(&c.opened, 1)
					s := e.Stats()
					long(s.Unfinished / 100)
					long(s.Longest)
				},
				Closed:  func(hook.QueueClosed) { count(&c.closed, 1) },
				Added:   func(e hook.QueueAdded) { count(&c.added, e.Keys) },
				Taken:   func(e hook.QueueTaken) { count(&c.taken, 1); long(e.Waited) },
				Settled: func(e hook.QueueSettled) { count(&c.settled, 1); long(e.Held) },
			}
		}
		q := newQueue(t, Options[int]{Reasons: reasons, Classes: ThreeClasses()})
		if reasons == 0 {
			q.Observe(observer())
		}
		var workers, others sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for {
					item, more := q.Get(ctx)
					if !more {
						return
					}
					item.Queued()
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
		others.Go(func() {
			for range 20 {
				q.Observe(observer())
				time.Sleep(100 * time.Microsecond)
			}
		})
		others.Wait()
		settled(t, q.Drain(ctx))
		workers.Wait()
		q.Observe(observer())
		for i, c := range all {
			// Keys that were held at Observe are settled without having been added.
			if c.opened != 1 || c.closed != 1 || c.added != c.taken || c.settled < c.taken || c.settled > c.taken+4 {
				t.Errorf("hooks %d saw %+v", i, *c)
			}
		}
		if first := all[0]; reasons == 0 && (first.taken != int(q.core.deliveries) || first.settled != first.taken) {
			t.Errorf("of %d deliveries, the first hooks saw %+v", q.core.deliveries, *first)
		}
	}
}

// TestObserve_APanicDoesNotHideEvents: if a hook panics, later hooks still see the event.
func TestObserve_APanicDoesNotHideEvents(t *testing.T) {
	var told []string
	q := newQueue(t, Options[string]{Hooks: &hook.Queue{
		Added:    func(hook.QueueAdded) { panic("no") },
		Closed:   func(hook.QueueClosed) { panic("no") },
		Panicked: func(hook.QueuePanicked) { panic("no") },
	}})
	q.Observe(&hook.Queue{
		Added:    func(hook.QueueAdded) { told = append(told, "added") },
		Closed:   func(hook.QueueClosed) { told = append(told, "closed") },
		Panicked: func(e hook.QueuePanicked) { told = append(told, "panic of "+e.Func) },
	})
	q.Add("a")
	q.ShutDown()
	if want := []string{"added", "panic of Hooks.Added", "closed", "panic of Hooks.Closed"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
