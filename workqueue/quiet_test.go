// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// lullOf calls Quiet. The result returns its number of deliveries, or -1 while it waits.
func lullOf(t *testing.T, q *Queue[string]) func() int {
	t.Helper()
	n := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		deliveries, err := q.Quiet(ctx)
		testkit.Equal(t, err, nil)
		n <- int(deliveries)
	}()
	return func() int {
		synctest.Wait()
		select {
		case d := <-n:
			return d
		default:
			return -1
		}
	}
}

func (q *Queue[K]) looks() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.watch != (watch{})
}

func TestW12_Quiet(t *testing.T) {
	take := func(q *Queue[string]) Item[string] {
		item, ok := tryGet(q)
		if !ok {
			panic("no key is ready")
		}
		return item
	}
	steps := map[string][]struct {
		name  string
		do    func(q *Queue[string], held *Item[string])
		quiet bool
	}{
		"done": {
			{"nothing", func(*Queue[string], *Item[string]) {}, true},
			{"added", func(q *Queue[string], _ *Item[string]) { q.Add("a") }, false},
			{"taken", func(q *Queue[string], h *Item[string]) { *h = take(q) }, false},
			{"added while held", func(q *Queue[string], _ *Item[string]) { q.Add("a") }, false},
			{"done, and ready", func(_ *Queue[string], h *Item[string]) { _ = h.Done() }, false},
			{"taken again", func(q *Queue[string], h *Item[string]) { *h = take(q) }, false},
			{"done", func(_ *Queue[string], h *Item[string]) { _ = h.Done() }, true},
		},
		"due later": {
			{"added, and taken", func(q *Queue[string], h *Item[string]) { q.Add("a"); *h = take(q) }, false},
			{"after", func(_ *Queue[string], h *Item[string]) { _ = h.After(10 * time.Millisecond) }, true},
			{"due", func(*Queue[string], *Item[string]) { time.Sleep(10 * time.Millisecond) }, false},
			{"taken", func(q *Queue[string], h *Item[string]) { *h = take(q) }, false},
			{"done, and due from outside", func(q *Queue[string], h *Item[string]) {
				_ = h.Done()
				q.AddWith("a", AddOptions{After: time.Millisecond})
			}, true},
		},
		"a short backoff, and a long one": {
			{"added, and taken", func(q *Queue[string], h *Item[string]) { q.Add("a"); *h = take(q) }, false},
			{"a second", func(_ *Queue[string], h *Item[string]) { _, _ = h.RetryWith(nil, RetryOptions{Exactly: time.Second}) }, false},
			{"due", func(*Queue[string], *Item[string]) { time.Sleep(time.Second) }, false},
			{"more than a second", func(q *Queue[string], h *Item[string]) {
				*h = take(q)
				_, _ = h.RetryWith(nil, RetryOptions{Exactly: 1001 * time.Millisecond})
			}, true},
			{"although there is less than a second left", func(*Queue[string], *Item[string]) { time.Sleep(900 * time.Millisecond) }, true},
		},
		"parked": {
			{"added, and taken", func(q *Queue[string], h *Item[string]) { q.Add("a"); *h = take(q) }, false},
			{"parked", func(_ *Queue[string], h *Item[string]) { _ = h.Park("its own writes", 0) }, false},
			{"woken", func(q *Queue[string], _ *Item[string]) { q.Wake("a") }, false},
			{"done", func(q *Queue[string], _ *Item[string]) { _ = take(q).Done() }, true},
		},
		"paused": {
			{"added", func(q *Queue[string], _ *Item[string]) { q.Add("a") }, false},
			{"paused", func(q *Queue[string], _ *Item[string]) { q.PauseKey("a") }, true},
			{"resumed", func(q *Queue[string], _ *Item[string]) { q.ResumeKey("a") }, false},
			{"all paused", func(q *Queue[string], _ *Item[string]) { q.Pause() }, true},
			{"all resumed", func(q *Queue[string], _ *Item[string]) { q.Resume() }, false},
			{"all paused while it is held", func(q *Queue[string], h *Item[string]) { *h = take(q); q.Pause() }, false},
			{"and settled", func(_ *Queue[string], h *Item[string]) { _ = h.Release() }, true},
		},
		"shut down": {
			{"added", func(q *Queue[string], _ *Item[string]) { q.Add("a"); q.ShutDown() }, false},
			{"drained", func(q *Queue[string], _ *Item[string]) { _ = take(q).Done() }, true},
		},
	}
	for name, steps := range steps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := New(Options[string]{})
				var held Item[string]
				var before func() int // the wait that the step before left, if it was not quiet
				for _, s := range steps {
					s.do(q, &held)
					if before != nil && (before() >= 0) != s.quiet {
						t.Errorf("%s: to one who waits it is quiet: %v", s.name, !s.quiet)
					}
					before = lullOf(t, q)
					testkit.Equal(t, before() >= 0, s.quiet, s.name, "to one who asks now it is quiet")
					if s.quiet {
						before = nil
					}
					testkit.NotEqual(t, q.looks(), s.quiet, s.name, "the queue looks for a lull")
				}
			})
		})
	}
}

// A key that waits for MinInterval counts like a ready one.
func TestW12_MinInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := New(Options[string]{MinInterval: time.Second})
		q.Add("a")
		quiet := lullOf(t, q)
		testkit.Equal(t, quiet(), -1, "it is quiet although a key will be ready soon")
		item, _ := q.Get(t.Context())
		_ = item.Done()
		testkit.Equal(t, quiet(), 1, "deliveries")
	})
}

// Two lulls with the same number of deliveries have none between them. The next has another number.
func TestW12_Deliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := New(Options[string]{})
		for want := range 3 {
			for range 2 {
				if n, err := q.Quiet(t.Context()); err != nil || int(n) != want {
					t.Errorf("%d deliveries, %v, want %d", n, err, want)
				}
			}
			q.Add("a")
			item, _ := tryGet(q)
			_ = item.Done()
		}
	})
}

func TestW12_TheErrorNamesWhatIsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := New(Options[string]{Name: "website"})
		for _, key := range []string{"held", "parked", "failed"} {
			q.Add(key)
		}
		_, _ = tryGet(q)
		parked, _ := tryGet(q)
		_ = parked.Park("ConfigMap.v1 is behind", 0)
		failed, _ := tryGet(q)
		_, _ = failed.Retry(nil)
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			q.Add(key)
		}
		q.AddWith("later", AddOptions{After: time.Minute})
		ctx, cancel := context.WithCancelCause(t.Context())
		boom := errors.New("boom")
		cancel(boom)
		_, err := q.Quiet(ctx)
		const want = `workqueue "website": 6 ready: a, b, c, d, e, ...; 1 held: held; 1 parked: parked (ConfigMap.v1 is behind); 1 waiting: failed: boom`
		testkit.Equal(t, fmt.Sprint(err), want)
		testkit.ErrorIs(t, err, boom)
		if strings.Contains(err.Error(), "later") {
			t.Error("it names what is not in the way")
		}
	})
}
