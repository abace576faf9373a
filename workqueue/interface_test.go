// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var _ clientgo.TypedRateLimitingInterface[name] = RateLimitingInterface[name](nil)

// TestInterface_SameAsClientGo runs the same random operations on both queues and compares the
// results.
func TestInterface_SameAsClientGo(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { sameAsClientGo(t, seed) })
	}
}

func sameAsClientGo(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	var ours clientgo.TypedRateLimitingInterface[int] = newQueue(t, Options[int]{Backoff: Exponential{Base: time.Millisecond}}).Interface()
	theirs := clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedItemBasedRateLimiter[int]())
	both := []clientgo.TypedRateLimitingInterface[int]{ours, theirs}
	held := map[int]bool{}
	for step := range 200 {
		// Due times must differ: client-go's order of equal ones is undefined.
		time.Sleep(1 + time.Duration(r.IntN(1000)))
		key, op := r.IntN(6), r.IntN(9)
		d := time.Duration(r.IntN(20_000_000))
		if op == 6 && ours.Len() == 0 || op == 7 && !held[key] {
			continue
		}
		var got [2]int
		for i, q := range both {
			switch op {
			case 0, 1:
				q.Add(key)
			case 2:
				q.AddAfter(key, d)
			case 3:
				q.AddRateLimited(key)
			case 4:
				q.Forget(key)
			case 5:
				got[i] = q.NumRequeues(key)
			case 6:
				if q.Len() == 0 {
					t.Fatalf("seed %d, step %d: client-go has nothing", seed, step)
				}
				got[i], _ = q.Get()
				held[got[i]] = true
			case 7:
				q.Done(key)
			}
		}
		switch op {
		case 7:
			delete(held, key)
		case 8:
			time.Sleep(d)
		}
		synctest.Wait()
		if got[0] != got[1] || ours.Len() != theirs.Len() {
			t.Fatalf("seed %d, step %d, operation %d on %d: returned %v, lengths %d and %d", seed, step, op, key, got, ours.Len(), theirs.Len())
		}
	}
	sameAfterShutDown(t, seed, ours, theirs, held)
}

func sameAfterShutDown(t *testing.T, seed uint64, ours, theirs clientgo.TypedRateLimitingInterface[int], held map[int]bool) {
	ours.ShutDown()
	theirs.ShutDown()
	// Keys that were queued, or added while held, are also delivered after ShutDown.
	for done := false; !done; {
		for key := range held {
			ours.Done(key)
			theirs.Done(key)
			delete(held, key)
		}
		a, end := ours.Get()
		b, theirEnd := theirs.Get()
		if a != b || end != theirEnd {
			t.Fatalf("seed %d: after ShutDown: %d, %v and %d, %v", seed, a, end, b, theirEnd)
		}
		done = end
		if !end {
			held[a] = true
		}
	}
}

func TestInterface_Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueue(t, Options[string]{}).Interface()
		r.Add("a")
		r.Add("b")
		a, _ := r.Get()
		var drained atomic.Int32
		for range 3 { // client-go wakes only one of them
			go func() { r.ShutDownWithDrain(); drained.Add(1) }()
		}
		synctest.Wait()
		r.Done(a)
		r.Add("c")
		synctest.Wait()
		testkit.Equal(t, drained.Load(), 0)
		testkit.Equal(t, r.Len(), 1)
		testkit.Equal(t, r.ShuttingDown(), true)
		b, shutdown := r.Get()
		testkit.Equal(t, b, "b", "Get after ShutDownWithDrain")
		testkit.Equal(t, shutdown, false, "Get after ShutDownWithDrain")
		r.Done(b)
		synctest.Wait()
		if _, shutdown := r.Get(); drained.Load() != 3 || !shutdown {
			t.Errorf("%d have returned, shutdown %v", drained.Load(), shutdown)
		}
	})
}

func TestInterface_ShutDownEndsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueue(t, Options[string]{}).Interface()
		r.Add("a")
		r.Get()
		r.ShutDown()
		for range 2 {
			go r.ShutDownWithDrain()
		}
		synctest.Wait()
		r.ShutDown()
		synctest.Wait()
		r.ShutDown()
	})
}

func TestInterface_DoneWithoutGet(t *testing.T) {
	q := newQueue(t, Options[string]{})
	r := q.Interface()
	r.Add("a")
	r.Done("a")
	r.Done("b")
	testkit.Equal(t, r.Len(), 1) // client-go has it twice now
	testkit.Equal(t, q.Snapshot().Misused, 2)
}

func TestInterface_SameKeyBothWays(t *testing.T) {
	q := newQueue(t, Options[string]{})
	r := q.Interface()
	q.Add("a")
	item := mustGet(t, q)
	r.Done("a") // settles it
	testkit.Equal(t, item.Done(), ErrNotHeld, "the item was still held")
	r.AddRateLimited("a")
	r.AddRateLimited("a")
	testkit.Equal(t, r.NumRequeues("a"), 2)
	r.Forget("a")
	testkit.Equal(t, r.NumRequeues("a"), 0, "NumRequeues after Forget")
	r.ShutDown()
	r.AddRateLimited("b")
	testkit.Equal(t, total(q), 0, "after ShutDown")
}
