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

// TestW5_AKeyKeepsItsClass: a key that comes back by itself keeps the class with which it was
// taken.
func TestW5_AKeyKeepsItsClass(t *testing.T) {
	verbs := []struct {
		name   string
		settle func(*Queue[string], Item[string]) error
	}{
		{"Retry", func(_ *Queue[string], i Item[string]) error { _, err := i.Retry(nil); return err }},
		{"RetryWith", func(_ *Queue[string], i Item[string]) error {
			_, err := i.RetryWith(nil, RetryOptions{Exactly: time.Minute})
			return err
		}},
		{"After", func(_ *Queue[string], i Item[string]) error { return i.After(time.Minute) }},
		{"After without a delay", func(_ *Queue[string], i Item[string]) error { return i.After(0) }},
		{"Park that expires", func(_ *Queue[string], i Item[string]) error { return i.Park("waits", time.Minute) }},
		{"Park and Wake", func(q *Queue[string], i Item[string]) error {
			defer q.Wake("a")
			return i.Park("waits", time.Minute)
		}},
		{"Release", func(_ *Queue[string], i Item[string]) error { return i.Release() }},
		{"Pause and Resume", func(q *Queue[string], i Item[string]) error {
			q.PauseKey("a")
			defer q.ResumeKey("a")
			return i.After(time.Minute)
		}},
		{"AddRateLimited", func(q *Queue[string], _ Item[string]) error {
			q.Interface().AddRateLimited("a")
			q.Interface().Done("a")
			return nil
		}},
	}
	for _, verb := range verbs {
		for _, class := range []Class{Background, Normal, Interactive} {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Options[string]{Classes: ThreeClasses()})
				q.AddWith("a", AddOptions{Class: class})
				settled(t, verb.settle(q, mustGet(t, q)))
				time.Sleep(time.Hour)
				item := mustGet(t, q)
				testkit.Equal(t, item.Class(), class, verb.name, fmt.Sprintf("a key of class %v came back in class", class))
				settled(t, item.Done())
				q.Add("a")
				testkit.Equal(t, mustGet(t, q).Class(), Normal, verb.name, "after Done an add gave class")
			})
		}
	}
}

// TestW5_AddsRaiseARetry: adds before, during and after the backoff raise the class of a retry and
// never lower it.
func TestW5_AddsRaiseARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Classes: ThreeClasses()})
		for _, add := range []Class{Background, Normal, Interactive} {
			q.Add("a")
			item := mustGet(t, q)
			_, err := item.Retry(nil)
			settled(t, err)
			q.AddWith("a", AddOptions{Class: add}) // ends the backoff
			item = mustGet(t, q)
			testkit.Equal(t, item.Class(), max(Normal, add), fmt.Sprintf("an add of class %v to a retry of class normal gave class", add))
			settled(t, item.Done())
		}
	})
}

// TestW5_AnAddThatBecomesDueDoesNotLowerTheClass: the key is ready in a higher class by then.
func TestW5_AnAddThatBecomesDueDoesNotLowerTheClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Classes: ThreeClasses()})
		q.AddWith("a", AddOptions{Class: Interactive})
		q.AddWith("a", AddOptions{Class: Background, After: time.Second})
		testkit.Pass(time.Second)
		item := mustGet(t, q)
		testkit.Equal(t, item.Class(), Interactive)
		settled(t, item.Done())
		wantLen(t, q, Len{})
	})
}

// storm returns a queue in which n keys of a class fail continuously.
func storm(t *testing.T, n int, class Class) *Queue[int] {
	q := newQueue(t, Options[int]{Classes: ThreeClasses(), Backoff: none{}})
	for k := range n {
		q.AddWith(k, AddOptions{Class: class})
	}
	failing(t, q, 2*n)
	return q
}

type none struct{}

func (none) Delay(int) time.Duration { return 0 }

// failing takes n keys and lets each fail.
func failing(t *testing.T, q *Queue[int], n int) {
	for range n {
		_, err := mustGet(t, q).Retry(nil)
		settled(t, err)
	}
}

// TestW6_RetriesDoNotPutOffAnAdd: an add is taken within a few keys, whatever the class of a storm
// of failures.
func TestW6_RetriesDoNotPutOffAnAdd(t *testing.T) {
	for class, most := range map[Class]int{Background: 1, Normal: 1, Interactive: 2} {
		q := storm(t, 5000, class)
		q.Add(-1)
		for others := 0; ; others++ {
			item := mustGet(t, q)
			if item.Key() == -1 {
				testkit.AtMost(t, others, most, class)
				break
			}
			_, err := item.Retry(nil)
			settled(t, err)
		}
	}
}

// TestW6_RetriesGetAFifth: while adds and retries of a class are ready, every fifth delivery is a
// retry. Without adds, all are retries.
func TestW6_RetriesGetAFifth(t *testing.T) {
	q := storm(t, 100, Normal)
	for k := range 1000 {
		q.Add(1000 + k)
	}
	retries := 0
	for range 1000 {
		item := mustGet(t, q)
		if item.Attempt() > 1 {
			retries++
			_, err := item.Retry(nil)
			settled(t, err)
			continue
		}
		settled(t, item.Done())
	}
	testkit.AtLeast(t, retries, 199)
	testkit.AtMost(t, retries, 201)
}

// TestW6_AnAddOfARetryIsAnAdd: a ready retry that is added in its class overtakes other retries.
func TestW6_AnAddOfARetryIsAnAdd(t *testing.T) {
	q := storm(t, 100, Normal)
	q.Add(50)
	q.Add(-1)
	var adds []int
	for range 5 { // every fifth is a retry
		item := mustGet(t, q)
		if item.Key() == 50 || item.Key() == -1 {
			adds = append(adds, item.Key())
		}
		_, err := item.Retry(nil)
		settled(t, err)
	}
	testkit.SlicesEqual(t, adds, []int{50, -1}, "adds among the first five")
}

// TestPlainQueueHasOneOrder: without Options.Classes, adds do not overtake or move a retry.
func TestPlainQueueHasOneOrder(t *testing.T) {
	q := newQueue(t, Options[int]{Backoff: none{}})
	q.Add(1)
	failing(t, q, 1)
	q.Add(2)
	q.Add(3)
	q.Add(1)
	testkit.SlicesEqual(t, order(t, q), []int{1, 2, 3})
}
