// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestSizes: a queued key takes little memory; see designs/0002.
func TestSizes(t *testing.T) {
	for what, size := range map[string][2]uintptr{
		"entry": {unsafe.Sizeof(entry[name]{}), 72},
		"note":  {unsafe.Sizeof(note{}), 72},
		"extra": {unsafe.Sizeof(extra{}), 112},
	} {
		if size[0] > size[1] {
			t.Errorf("%s has %d bytes, at most %d are good", what, size[0], size[1])
		}
	}
}

// TestReasons_AsGiven: a reason comes back as it was given, except for the time zone.
func TestReasons_AsGiven(t *testing.T) {
	q := newQueue(t, Options[string]{})
	at := time.Date(2001, 2, 3, 4, 5, 6, 789, time.FixedZone("far", 9*3600))
	give := []Reason{
		{Source: "pods", Event: "Update", Object: "a/b", UID: "u", ResourceVersion: "1", At: at},
		{Source: "pods", Event: "Update", Object: "a/b", UID: "u", ResourceVersion: "2", At: time.Now()},
		{Object: "a/b", At: at.AddDate(9000, 0, 0)},
		{Event: "pods", At: at.AddDate(-1990, 0, 0)},
		{Source: "pods"},
	}
	for _, r := range give {
		q.AddWith("a", AddOptions{Reason: r})
	}
	got := reasonsOf(mustGet(t, q))
	for i, r := range got {
		want := give[i]
		wantAt := want.At
		switch i {
		case 2:
			wantAt = q.core.start.Round(0).Add(math.MaxInt64)
		case 3:
			wantAt = q.core.start.Round(0).Add(math.MinInt64)
		case 4:
			if wantAt = r.At; r.At.Before(q.core.start) || r.At.After(time.Now()) {
				t.Errorf("reason %d was recorded at %v", i, r.At)
			}
		}
		if i < 4 && r.At != r.At.Round(0) {
			t.Errorf("reason %d has a monotonic clock reading: %v", i, r.At)
		}
		testkit.Equal(t, r.At.Equal(wantAt), true, fmt.Sprintf("reason %d is of %v, want %v", i, r.At, wantAt))
		testkit.Equal(t, r.At.Location(), time.Local, fmt.Sprintf("reason %d is of %v", i, r.At))
		r.At, want.At = time.Time{}, time.Time{}
		testkit.Equal(t, r, want, fmt.Sprintf("reason %d", i))
	}
	testkit.Equal(t, len(got), len(give), "reasons")
}

// TestReasons_EachFieldCounts: reasons that differ in any field are both kept.
func TestReasons_EachFieldCounts(t *testing.T) {
	same := Reason{Source: "a", Event: "b", Object: "c", UID: "d", ResourceVersion: "e"}
	for _, change := range []func(*Reason) *string{
		func(r *Reason) *string { return &r.Source }, func(r *Reason) *string { return &r.Event },
		func(r *Reason) *string { return &r.Object }, func(r *Reason) *string { return &r.UID },
		func(r *Reason) *string { return &r.ResourceVersion },
	} {
		q, other := newQueue(t, Options[string]{}), same
		*change(&other) = "z"
		for _, r := range []Reason{same, other, other, same} {
			q.AddWith("a", AddOptions{Reason: r})
		}
		other.Repeats = 1
		got := reasonsOf(mustGet(t, q))
		for i := range got {
			got[i].At = time.Time{}
		}
		testkit.SlicesEqual(t, got, []Reason{same, other, same}, "reasons")
	}
}

// TestReasons_RepeatsEnd: the count of repeats stays at its maximum.
func TestReasons_RepeatsEnd(t *testing.T) {
	q := newQueue(t, Options[string]{})
	q.AddWith("a", benchHow)
	q.core.notes.slab.At(1).repeats = math.MaxInt32 - 1
	for range 3 {
		q.AddWith("a", benchHow)
	}
	if r := reasonsOf(mustGet(t, q)); len(r) != 1 || r[0].Repeats != math.MaxInt32 {
		t.Errorf("reasons: %+v", r)
	}
}

// TestReasons_SinceDone: a key that was added with a reason while held is ready since its settle.
func TestReasons_SinceDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{})
		q.AddWith("a", benchHow)
		item := mustGet(t, q)
		q.Add("a")
		time.Sleep(time.Second)
		settled(t, item.Done())
		testkit.Equal(t, time.Since(mustGet(t, q).Queued()), 0)
	})
}

// TestReasons_One: a key with only one reason has no extra, in any state. With more it has one, and
// the reason still belongs to its delivery.
func TestReasons_One(t *testing.T) {
	q := newQueue(t, Options[string]{})
	want := func(extras int, want string) {
		t.Helper()
		k, _ := q.Lookup("a")
		noted := slices.DeleteFunc(k.Reasons, func(r Reason) bool { return r.Event == EventAdded })
		testkit.Equal(t, fmt.Sprint(texts(noted)), want, "reasons")
		testkit.Equal(t, q.core.extras.Len(), extras)
		testkit.Equal(t, q.core.notes.slab.Len(), len(noted))
	}
	x, y := AddOptions{Reason: Reason{Event: "x"}}, AddOptions{Reason: Reason{Event: "y"}}
	q.AddWith("a", x)
	q.AddWith("a", x)
	q.AddAll([]string{"a", "a"}, x)
	q.PauseKey("a")
	q.AddWith("a", x)
	want(0, "[x+4]")
	q.ResumeKey("a")
	item := mustGet(t, q)
	q.Wake("a")
	q.PauseKey("a")
	want(0, "[x+4]")
	settled(t, item.Release())
	want(0, "[x+4]")
	q.ResumeKey("a")
	item = mustGet(t, q)
	want(0, "[x+4]")
	settled(t, item.Done())
	want(0, "[]")

	q.RequeueNow("a", Reason{})
	mustGet(t, q)
	q.RequeueNow("a", Reason{}) // a reason of the next delivery
	want(1, "[RequeueNow+0 RequeueNow+0]")
	q = newQueue(t, Options[string]{})
	q.AddWith("a", x)
	item = mustGet(t, q)
	q.Add("a")
	settled(t, item.Done())
	want(0, "[]")
	settled(t, mustGet(t, q).Done())
	q = newQueue(t, Options[string]{})

	q.Add("a")
	item = mustGet(t, q)
	q.AddWith("a", x) // a reason of the next delivery alone
	want(1, "[x+0]")
	if r := reasonsOf(item); len(r) != 1 || r[0].Source != "queue" || r[0].Event != EventAdded {
		t.Errorf("reasons of a delivery without any: %v", r)
	}
	settled(t, item.Done())
	settled(t, mustGet(t, q).Done())
	want(0, "[]")

	for what, end := range map[string]func(Item[string]) string{
		"add":     func(i Item[string]) string { q.AddWith("a", x); _ = i.Done(); return "[x+0]" },
		"another": func(i Item[string]) string { q.AddWith("a", y); _ = i.Release(); return "[x+0 y+0]" },
		"later": func(i Item[string]) string {
			q.AddWith("a", AddOptions{After: time.Hour})
			_ = i.Release()
			return "[x+0]"
		},
		"park":  func(i Item[string]) string { _ = i.Park("", 0); return "[x+0]" },
		"woken": func(i Item[string]) string { q.Wake("a"); _ = i.Park("", 0); return "[x+0 Woken+0]" },
		"retry": func(i Item[string]) string { _, _ = i.RetryWith(nil, RetryOptions{NotBefore: time.Hour}); return "[]" },
		"after": func(i Item[string]) string { _ = i.After(0); return "[After+0]" },
	} {
		q.AddWith("a", x)
		item := mustGet(t, q)
		testkit.Equal(t, fmt.Sprint(texts(reasonsOf(item))), "[x+0]", what, "delivered for")
		want(1, end(item))
		q = newQueue(t, q.o)
	}
	q.AddWith("a", x)
	q.ShutDown()
	settled(t, mustGet(t, q).Release())
	want(0, "[]")
}
