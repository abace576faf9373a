// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

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
				testkit.Equal(t, mustGet(t, q).Class(), test.want, "delivered in class")
			})
		})
	}
	testkit.NotEqual(t, (Item[string]{}).InClass(Interactive).Done(), nil, "the zero Item was settled")
}

// TestGiveUp_UntilTheNextAdd: a key that was given up is not delivered by time or by its own adds.
// The next other add delivers it as the first attempt.
func TestGiveUp_UntilTheNextAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []hook.QueueSettled
		q := newQueue(t, Options[string]{
			Own:  ownEvent,
			Hook: hook.On(func(e *hook.QueueSettled) { told = append(told, *e) }),
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
		testkit.Equal(t, item.Attempt(), 1, "attempt after the next add")
		q.Add("key")
		settled(t, item.GiveUp(nil))
		item = mustGet(t, q)
		testkit.Equal(t, item.Attempt(), 1, "attempt after an add while it was held")
		settled(t, item.Done())
		_, known := q.Lookup("key")
		testkit.Equal(t, known, false, "the queue still knows the key after a success")
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
