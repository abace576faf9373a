// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/slab"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestW11_Snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[string]{Name: "web", Classes: ThreeClasses(), Tenant: func(k string) string { return k[:1] }})
		q.AddWith("a1", AddOptions{After: time.Minute, Reason: Reason{Event: "Tick"}})
		q.AddWith("b1", AddOptions{Class: Background, Reason: Reason{Event: "Create"}})
		_, err := mustGet(t, q).Retry(nil)
		settled(t, err)
		time.Sleep(time.Minute) // no call of Get waits, but due keys count as ready
		s := q.Snapshot()
		if s.Len != (Len{Ready: 2}) || s.Name != "web" || !s.At.Equal(time.Now()) || len(s.Keys) != 2 {
			t.Errorf("snapshot: %+v", s)
		}
		slices.SortFunc(s.Keys, func(a, b KeyState[string]) int { return int(a.Key[0]) - int(b.Key[0]) })
		a, b := s.Keys[0], s.Keys[1]
		if a.Key != "a1" || a.Tenant != "a" || a.State != Ready || a.Class != Normal || a.Reasons[0].Event != "Tick" || !a.Since.Equal(s.At) {
			t.Errorf("a1 is %+v", a)
		}
		testkit.Equal(t, b.Attempts, 1)
		testkit.Equal(t, b.Reasons[0].Event, EventRetry)
		testkit.Equal(t, b.Since.Sub(q.core.start), 5*time.Millisecond)
		if k, ok := q.Lookup("a1"); !ok || fmt.Sprint(k) != fmt.Sprint(a) {
			t.Errorf("Lookup: %+v, %v", k, ok)
		}
	})
}

// TestSnapshotJSON: in JSON, states and classes have names, and unset fields are omitted.
func TestSnapshotJSON(t *testing.T) {
	q := newQueue(t, Options[string]{Reasons: -1, Classes: ThreeClasses()})
	q.AddWith("a", AddOptions{Class: Background})
	q.AddWith("b", AddOptions{After: time.Hour})
	for key, want := range map[string]string{"a": `"State":"ready","Class":"background"`, "b": `"State":"waiting","Class":"normal"`} {
		k, _ := q.Lookup(key)
		got, err := json.Marshal(k)
		if err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), "Since") || strings.Contains(string(got), "Due") != (key == "b") {
			t.Errorf("%s is %s, %v", key, got, err)
		}
	}
}

// TestW11_KeysThatStay: keys come, go and change their states during each Snapshot.
func TestW11_KeysThatStay(t *testing.T) {
	const stay, workers = 3 * slab.ChunkLen, 2
	q := newQueue(t, Options[int]{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range stay {
		q.AddWith(i, AddOptions{After: time.Duration(i%2) * time.Hour})
	}
	for w := range workers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				q.Add(stay + w + workers*(i%slab.ChunkLen))
				item, _ := q.Get(ctx)
				if item.Key() >= stay {
					_ = item.Done() // the queue forgets it
				} else if item.Attempt()%2 == 1 {
					_, _ = item.RetryWith(nil, RetryOptions{NotBefore: time.Nanosecond})
				} else {
					q.Add(item.Key())
					_ = item.Done()
				}
			}
		})
	}
	for range 20 {
		shown, ranged := map[int]int{}, map[int]int{}
		for _, k := range q.Snapshot().Keys {
			shown[k.Key]++
		}
		for k := range q.Keys() {
			ranged[k]++
		}
		for k := range stay {
			testkit.Equal(t, shown[k], 1, fmt.Sprintf("key %d", k))
			testkit.Equal(t, ranged[k], 1, fmt.Sprintf("key %d", k))
		}
	}
	close(stop)
	wg.Wait()
}

// TestSnapshot_OtherCalls: the lock is free between two parts.
func TestSnapshot_OtherCalls(t *testing.T) {
	q := newQueue(t, Options[int]{})
	for i := range 2 * slab.ChunkLen {
		q.Add(i)
	}
	n := 0
	for k := range q.Keys() {
		q.Add(k + 1_000_000) // it need not come, but the loop must end
		if n > 1_000_000 {
			t.Fatal("the loop does not end")
		}
		if state, ok := q.Lookup(k); !ok || state.State != Ready {
			t.Errorf("key %d is %+v, %t", k, state, ok)
		}
		n++
	}
	testkit.AtLeast(t, n, 2*slab.ChunkLen)
	for range q.Keys() {
		break
	}
	q.Add(-1)
}
