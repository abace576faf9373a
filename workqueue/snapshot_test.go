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
		if b.Attempts != 1 || b.Reasons[0].Event != EventRetry || !b.Since.Equal(q.core.start.Add(5*time.Millisecond)) {
			t.Errorf("b1 is %+v", b)
		}
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

func TestW11_SnapshotIsOneMoment(t *testing.T) {
	q := newQueue(t, Options[int]{})
	q.AddWith(99, AddOptions{After: time.Hour})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		q.Add(i)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				item, _ := q.Get(ctx)
				if item.Attempt()%2 == 1 {
					_, _ = item.RetryWith(nil, RetryOptions{NotBefore: time.Nanosecond})
				} else {
					q.Add(item.Key())
					_ = item.Done()
				}
			}
		})
	}
	for range 500 {
		s := q.Snapshot()
		var n Len
		for _, k := range s.Keys {
			switch k.State {
			case Ready:
				n.Ready++
			case Waiting:
				n.Waiting++
			case Held:
				n.Held++
			}
		}
		if n != s.Len || len(s.Keys) != 5 { // a key is always somewhere
			t.Fatalf("snapshot of %+v has keys %+v", s.Len, s.Keys)
		}
	}
	close(stop)
	wg.Wait()
}
