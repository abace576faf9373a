// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[name]{})
		a, b := name{"x", "a"}, name{"x", "b"}
		q.Add(a)
		q.Add(b)
		q.Add(a)
		i := mustGet(t, q)
		if i.Key() != a {
			t.Fatal(i.Key())
		}
		q.Add(a)
		settled(t, i.Done())
		wantLen(t, q, Len{Ready: 2})
		if got := order(t, q); got[0] != b || got[1] != a {
			t.Fatal(got)
		}
		q.AddWith(a, How{After: time.Hour})
		wantLen(t, q, Len{Waiting: 1})
		start := time.Now()
		i, ok := q.Get(ctx)
		if !ok || time.Since(start) != time.Hour {
			t.Fatal(ok, time.Since(start))
		}
		d, err := i.Retry(nil)
		settled(t, err)
		i, _ = q.Get(ctx)
		if d != 5*time.Millisecond || i.Attempt() != 2 || time.Since(start) != time.Hour+d {
			t.Fatal(d, i.Attempt(), time.Since(start))
		}
		if r := i.Reasons(); len(r) != 1 || r[0].Event != EventRetry {
			t.Fatal(r)
		}
		settled(t, i.Done())
		go func() { time.Sleep(time.Second); q.Add(b) }()
		i, _ = q.Get(ctx)
		if i.Key() != b {
			t.Fatal(i)
		}
		go func() { time.Sleep(time.Second); i.Done() }()
		if err := q.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		if i.Done() != ErrNotHeld {
			t.Fatal("settled twice")
		}
	})
}
