// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func contextWithCancel() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }

type name struct{ Namespace, Name string }

func newQueue[K comparable](t testing.TB, o Options[K]) *Queue[K] {
	t.Helper()
	q, err := New(o)
	testkit.NoError(t, err)
	return q
}

// mustGet takes a key that must be ready.
func mustGet[K comparable](t testing.TB, q *Queue[K]) Item[K] {
	t.Helper()
	if q.Len().Ready == 0 {
		t.Fatal("no key is ready")
	}
	item, ok := q.Get(ctx)
	if !ok {
		t.Fatal("Get returned false")
	}
	return item
}

// tryGet takes a key if one is ready.
func tryGet[K comparable](q *Queue[K]) (item Item[K], ok bool) {
	q.lock()
	i := q.core.take()
	if i == 0 {
		q.unlock()
		return item, false
	}
	q.handOut(i, &item)
	return item, true
}

// reasonsOf returns the reasons of a delivery.
func reasonsOf[K comparable](item Item[K]) []Reason {
	reasons, _ := item.Reasons()
	return reasons
}

// settled fails the test if a settle failed.
func settled(t testing.TB, err error) {
	t.Helper()
	testkit.NoError(t, err)
}

// wantLen compares the queue's lengths.
func wantLen[K comparable](t testing.TB, q *Queue[K], want Len) {
	t.Helper()
	got := q.Len()
	got.AllPaused = want.AllPaused
	if got != want {
		t.Fatalf("lengths are %+v, want %+v", got, want)
	}
}

// total returns the number of keys that are not idle.
func total[K comparable](q *Queue[K]) int {
	l := q.Len()
	return l.Ready + l.Waiting + l.Held + l.Parked + l.Paused
}

// order takes and settles all ready keys and returns them in order.
func order[K comparable](t testing.TB, q *Queue[K]) []K {
	t.Helper()
	var keys []K
	for q.Len().Ready > 0 {
		item := mustGet(t, q)
		keys = append(keys, item.Key())
		settled(t, item.Done())
	}
	return keys
}
