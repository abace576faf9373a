// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// TestConfigure_ReplacesTheOptionsOfAnUnusedQueue: the queue then behaves as if New had been called
// with these options, and keeps its name and its hooks.
func TestConfigure_ReplacesTheOptionsOfAnUnusedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		added := map[int]int{}
		h := &hook.Queue{Added: func(e hook.QueueAdded) { added[e.Class] += e.Keys }}
		q := newQueue(t, Options[name]{Name: "configured", Hooks: h})
		q.PauseAll()
		settled(t, q.Configure(Options[name]{
			Name: "other", Classes: ThreeClasses(), Tenant: func(k name) string { return k.Namespace },
			Backoff: Exponential{Base: time.Minute}, MinInterval: time.Second,
		}))
		q.AddAll([]name{{"a", "1"}, {"a", "2"}, {"b", "1"}}, AddOptions{Class: Background})
		if l := q.Len(); l.Waiting != 3 || !l.AllPaused {
			t.Errorf("the queue has %+v, want 3 keys that wait for MinInterval, and PauseAll", l)
		}
		time.Sleep(time.Second)
		q.ResumeAll()
		if s := q.stats(); s.ReadyByTenant["a"] != 2 || s.ReadyByTenant["b"] != 1 || len(s.ReadyByTenant) != 2 || s.ReadyByClass[int(Background)] != 3 {
			t.Errorf("the stats are %+v", s)
		}
		var tenants []string
		for range 3 {
			item := mustGet(t, q)
			tenants = append(tenants, item.Tenant())
			if d, err := item.Retry(nil); d != time.Minute || err != nil {
				t.Errorf("Retry: %v, %v", d, err)
			}
		}
		if !slices.Equal(tenants, []string{"a", "b", "a"}) {
			t.Errorf("the tenants were served in the order %q", tenants)
		}
		if s := q.stats(); len(s.ReadyByTenant) != 0 {
			t.Errorf("with no ready key, tenants are %v", s.ReadyByTenant)
		}
		if n := q.Snapshot().Name; n != "configured" || !maps.Equal(added, map[int]int{int(Background): 3}) {
			t.Errorf("the name is %q and the hooks were told of %v", n, added)
		}
	})
}

// TestConfigure_AUsedQueueKeepsItsOptions: after an add, a Pause or a RequeueNow, Configure is an
// error, also if the key is forgotten already.
func TestConfigure_AUsedQueueKeepsItsOptions(t *testing.T) {
	for what, use := range map[string]func(q *Queue[int]){
		"Add":        func(q *Queue[int]) { q.Add(1) },
		"AddWith":    func(q *Queue[int]) { q.AddWith(1, AddOptions{}) },
		"AddAll":     func(q *Queue[int]) { q.AddAll([]int{1}, AddOptions{}) },
		"Pause":      func(q *Queue[int]) { q.Pause(1) },
		"RequeueNow": func(q *Queue[int]) { q.RequeueNow(1, Reason{}) },
		"Done":       func(q *Queue[int]) { q.Add(1); settled(t, mustGet(t, q).Done()) },
	} {
		q := newQueue(t, Options[int]{Name: "used"})
		use(q)
		err := q.Configure(Options[int]{Classes: ThreeClasses()})
		if want := `workqueue "used": Configure: the queue had keys before; set the options before the first add`; err == nil || err.Error() != want {
			t.Errorf("after %s: %v", what, err)
		}
	}
	q := newQueue(t, Options[int]{Name: "unused"})
	q.Lookup(1)
	q.Wake(1)
	q.Forget(1)
	settled(t, q.Configure(Options[int]{}))
	if err := q.Configure(Options[int]{MinInterval: -1}); err == nil || !strings.Contains(err.Error(), "MinInterval") {
		t.Errorf("wrong options: %v", err)
	}
}

// TestInClass_ChoosesTheClassOfTheNextDelivery: Retry and After deliver in the chosen class, an add
// in a higher class raises the key, and other settles ignore the choice.
func TestInClass_ChoosesTheClassOfTheNextDelivery(t *testing.T) {
	for _, test := range []struct {
		what   string
		settle func(q *Queue[string], item Item[string]) error
		want   Class
	}{
		{"Retry", func(_ *Queue[string], i Item[string]) error { _, err := i.InClass(Background).Retry(nil); return err }, Background},
		{"After", func(_ *Queue[string], i Item[string]) error { return i.InClass(Interactive).After(time.Second) }, Interactive},
		{"After 0", func(_ *Queue[string], i Item[string]) error { return i.InClass(Background).After(0) }, Background},
		{"no choice", func(_ *Queue[string], i Item[string]) error { return i.After(time.Second) }, Normal},
		{"an add", func(q *Queue[string], i Item[string]) error {
			q.Add("key")
			return i.InClass(Background).After(time.Second)
		}, Normal},
		{"Release", func(_ *Queue[string], i Item[string]) error { return i.InClass(Background).Release() }, Normal},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Options[string]{Classes: ThreeClasses()})
				q.Add("key")
				settled(t, test.settle(q, mustGet(t, q)))
				time.Sleep(time.Second)
				if item := mustGet(t, q); item.Class() != test.want {
					t.Errorf("delivered in class %s, want %s", item.Class(), test.want)
				}
			})
		})
	}
	if err := (Item[string]{}).InClass(Interactive).Done(); err == nil {
		t.Error("the zero Item was settled")
	}
}

// TestGiveUp_UntilTheNextAdd: a key that was given up is not delivered by time or by its own adds.
// The next other add delivers it as the first attempt.
func TestGiveUp_UntilTheNextAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []hook.QueueSettled
		q := newQueue(t, Options[string]{
			Own:   func(_ string, _ uint64, r Reason) bool { return r.Event == "own" },
			Hooks: &hook.Queue{Settled: func(e hook.QueueSettled) { told = append(told, e) }},
		})
		own := AddOptions{Reason: Reason{Event: "own"}}
		q.Add("key")
		_, err := mustGet(t, q).Retry(nil)
		settled(t, err)
		time.Sleep(time.Minute)
		item := mustGet(t, q)
		q.AddWith("key", own)
		settled(t, item.GiveUp(ErrNotHeld))
		q.AddWith("key", own)
		q.AddAll([]string{"key"}, own)
		time.Sleep(24 * time.Hour)
		if k, known := q.Lookup("key"); !known || k.State != Idle || k.Attempts != 2 {
			t.Fatalf("the key is %+v, %t; want idle with 2 failures", k, known)
		}
		q.AddWith("key", AddOptions{Reason: Reason{Event: "update"}})
		item = mustGet(t, q)
		if item.Attempt() != 1 {
			t.Errorf("attempt %d after the next add", item.Attempt())
		}
		q.Add("key")
		settled(t, item.GiveUp(nil))
		if item = mustGet(t, q); item.Attempt() != 1 {
			t.Errorf("attempt %d after an add while it was held", item.Attempt())
		}
		settled(t, item.Done())
		if _, known := q.Lookup("key"); known {
			t.Error("the queue still knows the key after a success")
		}
		if e := told[1]; e.Outcome != hook.QueueGiveUp || e.Attempt != 2 || e.Err != ErrNotHeld {
			t.Errorf("the hooks were told %+v", e)
		}
	})
}

func TestClass_Text(t *testing.T) {
	for class, want := range map[Class]string{Background: "background", Normal: "normal", Interactive: "interactive", -128: "class -128"} {
		if text, err := class.MarshalText(); string(text) != want || err != nil {
			t.Errorf("the text is %q, %v; want %q", text, err, want)
		}
	}
}
