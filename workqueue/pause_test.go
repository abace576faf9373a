// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestPauseWithTheOtherVerbs: a paused key is not delivered before Resume, whatever else happens.
// Then it is delivered with everything that it was owed.
func TestPauseWithTheOtherVerbs(t *testing.T) {
	park := func(t *testing.T, i Item[string]) { settled(t, i.Park("behind", time.Minute)) }
	retry := func(t *testing.T, i Item[string]) {
		_, err := i.RetryWith(nil, RetryOptions{Exactly: time.Minute, Event: "Conflict"})
		settled(t, err)
	}
	for _, test := range []struct {
		name    string
		held    func(q *Queue[string]) // while the key is held
		settle  func(t *testing.T, i Item[string])
		then    func(q *Queue[string])
		paused  string // state by Lookup then
		resumed string // and after Resume
		reasons string // of the next delivery
	}{
		{"paused while parked: resuming does not wake it", nil, park,
			func(q *Queue[string]) { q.PauseKey("a") }, "parked, to be paused", "parked", "[add ParkExpired]"},
		{"woken while parked and paused", nil, park,
			func(q *Queue[string]) { q.PauseKey("a"); q.Wake("a") }, "paused, owed", "ready", "[add Woken]"},
		{"requeued while parked and paused", nil, park,
			func(q *Queue[string]) { q.PauseKey("a"); q.RequeueNow("a", Reason{}) }, "paused, owed", "ready", "[add RequeueNow]"},
		{"expired while parked and paused", nil, park,
			func(q *Queue[string]) { q.PauseKey("a"); time.Sleep(time.Minute) }, "paused, owed", "ready", "[add ParkExpired]"},
		{"added while parked and paused", nil, park,
			func(q *Queue[string]) { q.PauseKey("a"); q.AddWith("a", AddOptions{Reason: Reason{Event: "more"}}) }, "parked, to be paused", "parked", "[add more ParkExpired]"},
		{"resumed, then woken", nil, park,
			func(q *Queue[string]) { q.PauseKey("a"); q.ResumeKey("a"); q.Wake("a") }, "ready", "ready", "[add Woken]"},
		{"paused while held, then parked",
			func(q *Queue[string]) { q.PauseKey("a") }, park, nil, "parked, to be paused", "parked", "[add ParkExpired]"},
		{"paused and woken while held, then parked",
			func(q *Queue[string]) { q.PauseKey("a"); q.Wake("a") }, park, nil, "paused, owed", "ready", "[add Woken]"},
		{"paused and requeued while held, then parked",
			func(q *Queue[string]) { q.PauseKey("a"); q.RequeueNow("a", Reason{}) }, park, nil, "paused, owed", "ready", "[add RequeueNow Woken]"},
		{"paused while held, then released",
			func(q *Queue[string]) { q.PauseKey("a") }, func(t *testing.T, i Item[string]) { settled(t, i.Release()) }, nil, "paused, owed", "ready", "[add]"},
		{"paused while held, then done",
			func(q *Queue[string]) { q.PauseKey("a") }, func(t *testing.T, i Item[string]) { settled(t, i.Done()) }, nil, "paused", "unknown", ""},
		{"paused while held, then retried",
			func(q *Queue[string]) { q.PauseKey("a") }, retry, nil, "paused", "waiting", "[Conflict]"},
		{"due while paused in backoff", nil, retry,
			func(q *Queue[string]) { q.PauseKey("a"); time.Sleep(time.Minute) }, "paused, owed", "ready", "[Conflict]"},
		{"woken while paused in backoff", nil, retry,
			func(q *Queue[string]) { q.PauseKey("a"); q.Wake("a") }, "paused", "waiting", "[Conflict]"},
		{"requeued while paused in backoff", nil, retry,
			func(q *Queue[string]) { q.PauseKey("a"); q.RequeueNow("a", Reason{}) }, "paused, owed", "ready", "[RequeueNow]"},
		{"added while paused in backoff", nil, retry,
			func(q *Queue[string]) { q.PauseKey("a"); q.AddWith("a", AddOptions{Reason: Reason{Event: "more"}}) }, "paused, owed", "ready", "[more]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Options[string]{})
				q.AddWith("a", AddOptions{Reason: Reason{Event: "add"}})
				item := mustGet(t, q)
				if test.held != nil {
					test.held(q)
				}
				test.settle(t, item)
				if test.then != nil {
					test.then(q)
				}
				if got := stands(q); got != test.paused {
					t.Fatalf("paused: %s, want %s", got, test.paused)
				}
				q.ResumeKey("a")
				if got := stands(q); got != test.resumed {
					t.Fatalf("resumed: %s, want %s", got, test.resumed)
				}
				if test.resumed == "unknown" {
					return
				}
				item, _ = q.Get(ctx)
				testkit.Equal(t, fmt.Sprint(events(reasonsOf(item))), test.reasons)
				settled(t, item.Done())
				wantLen(t, q, Len{})
			})
		})
	}
}

// stands describes the state of key a.
func stands(q *Queue[string]) string {
	k, ok := q.Lookup("a")
	if !ok {
		return "unknown"
	}
	s := k.State.String()
	if k.Paused && k.State != Paused {
		s += ", to be paused"
	}
	if k.Again {
		s += ", owed"
	}
	return s
}

// TestOwn_WhilePaused: own adds in backoff are also dropped while the key is paused, unless it is
// owed a delivery anyway.
func TestOwn_WhilePaused(t *testing.T) {
	q := newQueue(t, Options[string]{
		Backoff: Exponential{Base: time.Hour}, Own: ownEvent,
	})
	q.Add("a")
	_, err := mustGet(t, q).Retry(nil)
	settled(t, err)
	q.PauseKey("a")
	q.AddWith("a", AddOptions{Reason: Reason{Event: "own"}})
	q.ResumeKey("a")
	wantLen(t, q, Len{Waiting: 1})
	q.PauseKey("a")
	q.AddWith("a", AddOptions{Reason: Reason{Event: "other"}})
	q.AddWith("a", AddOptions{Reason: Reason{Event: "own"}})
	q.ResumeKey("a")
	if k, _ := q.Lookup("a"); k.State != Ready || fmt.Sprint(events(k.Reasons)) != "[other own]" {
		t.Errorf("the key is %+v", k)
	}
}

// TestRetryWith covers the delay, the event, and adds before the delay is over.
func TestRetryWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Backoff: Exponential{Base: time.Second, Max: time.Second}})
		q.Add("a")
		for i, test := range []struct {
			again RetryOptions
			delay time.Duration
			event string
		}{
			{RetryOptions{}, time.Second, EventRetry},
			{RetryOptions{NotBefore: time.Millisecond, Event: "Conflict"}, time.Second, "Conflict"},
			{RetryOptions{NotBefore: time.Minute}, time.Minute, EventRetry},
			{RetryOptions{NotBefore: time.Minute, Exactly: time.Millisecond, Event: "After"}, time.Millisecond, "After"},
			{RetryOptions{Exactly: -1}, time.Second, EventRetry},
		} {
			start := time.Now()
			d, err := mustGet(t, q).RetryWith(nil, test.again)
			settled(t, err)
			if k, _ := q.Lookup("a"); d != test.delay || k.ParkReason != "" {
				t.Errorf("%+v: a delay of %s, want %s; %+v", test.again, d, test.delay, k)
			}
			item, _ := q.Get(ctx)
			want := Reason{Source: "queue", Event: test.event, At: start.Add(test.delay)}
			if got := reasonsOf(item); len(got) != 1 || got[0] != want || item.Attempt() != i+2 {
				t.Errorf("%+v: attempt %d, reasons %+v, want %+v", test.again, item.Attempt(), got, want)
			}
			settled(t, item.Release())
		}

		item := mustGet(t, q)
		q.AddWith("a", AddOptions{Reason: Reason{Event: "Update"}})
		_, err := item.RetryWith(nil, RetryOptions{Event: "Conflict"})
		settled(t, err)
		testkit.Equal(t, fmt.Sprint(events(reasonsOf(mustGet(t, q)))), "[Update]", "reasons after an add that came first")
		testkit.Equal(t, testkit.Err(item.RetryWith(nil, RetryOptions{})), ErrNotHeld, "settled twice")
		testkit.Equal(t, testkit.Err((Item[string]{}).RetryWith(nil, RetryOptions{})), ErrNotHeld, "the zero item")
	})
}

type noBackoff struct{}

func (noBackoff) Delay(int) time.Duration { return 0 }

// TestRetryWith_AtOnce: a retry without delay has a reason too, and a later retry does not keep its
// event.
func TestRetryWith_AtOnce(t *testing.T) {
	q := newQueue(t, Options[string]{Backoff: noBackoff{}})
	q.Add("a")
	for _, event := range []string{"Conflict", ""} {
		_, err := mustGet(t, q).RetryWith(nil, RetryOptions{Event: event})
		settled(t, err)
	}
	testkit.Equal(t, fmt.Sprint(events(reasonsOf(mustGet(t, q)))), "[Retry]")
}

// TestRequeueNow_Reason: the delivery has the caller's reason.
func TestRequeueNow_Reason(t *testing.T) {
	q := newQueue(t, Options[string]{})
	why := Reason{Source: "annotation", Event: "Requeue", Object: "x/a", UID: "u", ResourceVersion: "7"}
	q.Add("a")
	item := mustGet(t, q)
	q.RequeueNow("a", why)
	settled(t, item.Park("behind", 0))
	item = mustGet(t, q) // requested while the key was held
	got := reasonsOf(item)
	if len(got) != 2 || got[1].Event != EventWoken {
		t.Fatalf("reasons: %+v", got)
	}
	got[0].At = (time.Time{})
	testkit.Equal(t, got[0], why, "the reason")
	settled(t, item.Done())
	q.RequeueNow("a", Reason{})
	if got := reasonsOf(mustGet(t, q)); len(got) != 1 || got[0].Event != EventRequeueNow {
		t.Errorf("the zero reason is %+v", got)
	}
}
