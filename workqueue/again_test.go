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

// Repeated adds of a key.

// TestReasons_Repeats: a reason equal to the newest one is counted instead of recorded.
func TestReasons_Repeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		add := func(event string, after time.Duration) {
			time.Sleep(time.Second)
			q.AddWith("a", AddOptions{After: after, Reason: Reason{Event: event, At: time.Now(), Repeats: 7}})
		}
		want := func(want string) {
			t.Helper()
			k, _ := q.Lookup("a")
			testkit.Equal(t, fmt.Sprint(texts(k.Reasons)), want)
		}
		for _, event := range []string{"x", "x", "y", "x", "x", "x"} {
			add(event, 0)
		}
		want("[x+1 y+0 x+2]")
		k, _ := q.Lookup("a")
		testkit.Equal(t, k.Reasons[2].At.Sub(q.core.start), 4*time.Second)
		q.RequeueNow("a", Reason{})
		q.RequeueNow("a", Reason{})
		want("[x+1 y+0 x+2 RequeueNow+1]")
		add("y", 3*time.Second)
		add("y", 0) // the other y belongs to a later delivery
		add("y", 0)
		want("[x+1 y+0 x+2 RequeueNow+1 y+1 y+0]")
		add("y", 0)
		want("[x+1 y+0 x+2 RequeueNow+1 y+1 y+1]")

		item := mustGet(t, q)
		q.RequeueNow("a", Reason{})
		add("x", 0)
		add("x", 0)
		want("[x+1 y+0 x+2 RequeueNow+1 y+1 y+1 RequeueNow+0 x+1]")
		settled(t, item.Done())
		want("[RequeueNow+0 x+1]")
		q.ShutDown()
		add("x", 0)
		want("[RequeueNow+0 x+1]")
	})
}

// TestTenantOnce: Tenant is not called for an add of a known key.
func TestTenantOnce(t *testing.T) {
	asked := 0
	q := newQueue(t, Options[string]{Backoff: Exponential{Base: time.Hour}, Tenant: func(k string) string { asked++; return k[:1] }})
	want := func(n int) {
		t.Helper()
		if k, _ := q.Lookup("a"); k.Tenant != "a" || asked != n {
			t.Errorf("tenant %q, asked %d times, want %d", k.Tenant, asked, n)
		}
	}
	q.Add("a")
	want(1)
	q.Add("a")
	q.AddWith("a", AddOptions{Class: Interactive, Reason: Reason{Event: "x"}})
	want(1)
	item := mustGet(t, q)
	q.Add("a")
	want(1)
	settled(t, item.Done())
	settled(t, mustGet(t, q).Done())
	q.Add("a")
	want(2)
}

// TestTenantOfKeyForgottenMeanwhile: the key is settled and forgotten during a call of Own.
func TestTenantOfKeyForgottenMeanwhile(t *testing.T) {
	var q *Queue[string]
	q = newQueue(t, Options[string]{
		Backoff: Exponential{Base: time.Hour}, Tenant: func(k string) string { return k[:1] },
		Own: func(k string, _ uint64, _ Reason) (bool, time.Duration) {
			q.RequeueNow(k, Reason{})
			settled(t, mustGet(t, q).Done())
			return false, 0
		},
	})
	q.Add("a")
	_, err := mustGet(t, q).Retry(nil)
	settled(t, err)
	q.Add("a")
	if k, ok := q.Lookup("a"); !ok || k.State != Ready || k.Tenant != "a" {
		t.Errorf("the key is %+v, %v", k, ok)
	}
}

func texts(rs []Reason) []string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprint(r.Event, "+", r.Repeats))
	}
	return out
}
