// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/shard"
)

// owners returns who may work on each slot now.
func (f *fleet) owners() (all [256]string) {
	for _, r := range f.all {
		for _, a := range r.owns() {
			all[a.Number] = r.name
		}
	}
	return all
}

func moved(before, after [256]string) (from, to map[string]int) {
	from, to = map[string]int{}, map[string]int{}
	for s := range before {
		if before[s] != after[s] {
			from[before[s]]++
			to[after[s]]++
		}
	}
	return from, to
}

// TestP6_AChangeMovesFewSlots: a member that joins or leaves moves its own part only.
func TestP6_AChangeMovesFewSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		for i, name := range []string{"a", "b", "c", "d"} {
			before := f.owners()
			f.start(name, shard.Options{})
			f.passUntil(name, time.Minute, even(i+1, 256))
			from, to := moved(before, f.owners())
			testkit.Len(t, to, 1, fmt.Sprintf("%s joins", name))
			testkit.NotEqual(t, to[name], 0, fmt.Sprintf("%s joins", name))
			for other, n := range from {
				if other != "" && n > 256/(i+1)+1 {
					t.Errorf("%s joins: %d slots move from %s", name, n, other)
				}
			}
		}
		before := f.owners()
		f.all[1].stop()
		f.passUntil("b leaves", time.Minute, even(3, 256))
		if from, _ := moved(before, f.owners()); len(from) != 1 || from["b"] != 64 {
			t.Errorf("b leaves: slots move from %v", from)
		}
	})
}

// TestP6_ARollingUpdateMovesEachSlotOnce: each new replica gets the slots of the one that it
// replaces. With another number of members than four, shares differ by one, which moves more.
func TestP6_ARollingUpdateMovesEachSlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		old := []*replica{f.start("a", shard.Options{}), f.start("b", shard.Options{}), f.start("c", shard.Options{}), f.start("d", shard.Options{})}
		f.passUntil("four members", time.Minute, even(4, 256))
		var moves [256]int
		owner := f.owners()
		note := func() {
			for s, now := range f.owners() {
				if now != "" && now != owner[s] {
					owner[s] = now
					moves[s]++
				}
			}
		}
		for _, r := range old {
			f.start("new-"+r.name, shard.Options{})
			f.pass(3 * time.Second)
			note()
			r.stop()
			f.passUntil(r.name, 5*time.Second, func(counts map[string]int) bool { note(); return counts[r.name] == 0 && len(counts) == 4 })
		}
		f.pass(time.Minute)
		note()
		testkit.Equal(t, even(4, 256)(f.judge()), true, f.judge())
		testkit.AtMost(t, slices.Max(moves[:]), 1, "moves of the slots")
		testkit.Equal(t, slices.Min(moves[:]), 1, "moves of the slots")
	})
}

// busy begins work in a slot of a replica. Call done when it has returned.
func busy(t *testing.T, r *replica) (work *owned.Slot, done func()) {
	t.Helper()
	for _, a := range r.owns() {
		if a.Begin() {
			r.work.Add(1)
			return a, func() { a.End(); r.work.Done() }
		}
	}
	t.Fatalf("%s owns nothing", r.name)
	return nil, nil
}

// TestP1_ASlotWaitsForRunningWork: the other slots of a member that leaves do not wait, the fence
// of this one stays open, and the status has the reason.
func TestP1_ASlotWaitsForRunningWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a, b := f.start("a", shard.Options{}), f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		work, done := busy(t, a)
		a.stop()
		f.passUntil("the rest", 5*time.Second, func(counts map[string]int) bool { return counts["b"] == 255 })
		f.pass(10 * time.Second)
		testkit.Equal(t, f.judge()["b"], 255)
		testkit.Equal(t, work.Term.Trusted(), nil)
		if u := b.Status().Unserved; len(u) != 1 || !slices.Equal(u[0].Slots, []int{int(work.Number)}) || !strings.Contains(u[0].Reason, "it drains") || time.Since(u[0].Since) < 9*time.Second {
			t.Errorf("%+v", u)
		}
		done()
		took := f.passUntil("the last one", time.Second, func(counts map[string]int) bool { return counts["b"] == 256 })
		testkit.AtMost(t, took, 50*time.Millisecond)
		testkit.NotEqual(t, work.Term.Trusted(), nil)
		testkit.Equal(t, work.Begin(), false)
	})
}

// TestP4_TheNextOwnerKnowsWhatWasWritten, also if the slot moves on before it has worked.
func TestP4_TheNextOwnerKnowsWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		work, done := busy(t, a)
		w := ledger.Write{ResourceVersion: "77", Effect: ledger.Stored}
		w.Request = ledger.Request{Verb: "update", Resource: "configmaps", Namespace: "default", Name: "x", Host: f.api.Config().Host}
		work.Term.Wrote(&w)
		done()
		for _, name := range []string{"b", "c"} {
			next := f.start(name, shard.Options{})
			f.passUntil("the next member", 10*time.Second, func(map[string]int) bool { return next.Status().Member != "" && len(next.Status().Members) > 1 })
			f.all[len(f.all)-2].stop()
			f.passUntil(name, 10*time.Second, func(counts map[string]int) bool { return counts[name] == 256 })
			left := leftOf(next, work.Number)
			other := func(w fence.Written) bool { return w.ResourceVersion != "77" || w.Resource.Resource != "configmaps" }
			if left == nil || len(left.Written) == 0 || slices.ContainsFunc(left.Written, other) {
				t.Errorf("%s gets %+v", name, left)
			}
		}
		c := f.all[len(f.all)-1]
		f.pass(2 * time.Minute) // the owner settles it
		d := f.start("d", shard.Options{})
		f.pass(3 * time.Second)
		c.stop()
		f.passUntil("d", 10*time.Second, func(counts map[string]int) bool { return counts["d"] == 256 })
		testkit.Equal(t, leftOf(d, work.Number), nil, "an old write is handed over")
	})
}

func leftOf(r *replica, slot uint8) *fence.Handover {
	for _, a := range r.owns() {
		if a.Number == slot {
			return a.Term.Inherited()
		}
	}
	return nil
}

// slotCache is a cache of slots that syncs when it is told.
type slotCache struct {
	mu      sync.Mutex
	has     map[uint8]bool
	may     chan struct{}
	adds    int
	removed map[uint8]int
}

func newSlotCache() *slotCache {
	k := &slotCache{has: map[uint8]bool{}, may: make(chan struct{}), removed: map[uint8]int{}}
	close(k.may)
	return k
}

func (k *slotCache) Add(slots ...uint8) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.adds++
	for _, s := range slots {
		if k.has[s] {
			panic(fmt.Sprintf("slot %d is added twice", s))
		}
		k.has[s] = true
	}
}

func (k *slotCache) Remove(slots ...uint8) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range slots {
		delete(k.has, s)
		k.removed[s]++
	}
}

func (k *slotCache) WaitForSync(ctx context.Context, slots ...uint8) error {
	k.mu.Lock()
	may := k.may
	k.mu.Unlock()
	select {
	case <-may:
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range slots {
		if !k.has[s] {
			return errors.New("a slot was removed")
		}
	}
	return nil
}

func (k *slotCache) block() (unblock func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	may := make(chan struct{})
	k.may = may
	return func() { close(may) }
}

func (k *slotCache) keeps() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.has)
}

// TestP3_ANextOwnerIsReadyWhenItsCachesAre: the owner works until then. Afterwards each member
// keeps its own slots.
func TestP3_ANextOwnerIsReadyWhenItsCachesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		ka, kb := newSlotCache(), newSlotCache()
		unblock := kb.block()
		a := f.start("a", shard.Options{SlotCache: ka})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		f.start("b", shard.Options{SlotCache: kb})
		f.pass(time.Minute)
		testkit.Equal(t, f.judge()["a"], 256)
		testkit.Equal(t, kb.keeps(), 128)
		unblock()
		f.passUntil("two members", time.Second, even(2, 256))
		f.pass(time.Second)
		testkit.Equal(t, ka.keeps(), 128)
		testkit.Equal(t, kb.keeps(), 128)
		testkit.Equal(t, kb.adds, 1)
		defer kb.block()()
		a.cut.Store(true)
		f.pass(20 * time.Second)
		testkit.Equal(t, f.judge()["b"], 128)
		testkit.Equal(t, kb.keeps(), 256)
		testkit.Equal(t, ka.keeps(), 0, "a has lost its Lease and keeps slots")
	})
}

// TestGroup_AMoveThatIsCancelled: the next owner leaves before its caches are ready.
func TestGroup_AMoveThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		kb := newSlotCache()
		defer kb.block()()
		f.start("a", shard.Options{SlotCache: newSlotCache()})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		b := f.start("b", shard.Options{SlotCache: kb})
		f.pass(30 * time.Second)
		b.stop()
		testkit.Equal(t, <-b.done, nil)
		testkit.Equal(t, f.pass(time.Second)["a"], 256)
	})
}

// TestGroup_ALeadThatFails: its error ends Run, and the member leaves.
func TestGroup_ALeadThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		f.start("a", shard.Options{})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		r := f.make("b", shard.Options{})
		broken := errors.New("it is broken")
		done := make(chan error, 1)
		go func() {
			done <- r.Run(t.Context(), func(take, _ context.Context) error {
				select {
				case <-time.After(time.Minute):
					return broken
				case <-take.Done():
					return nil
				}
			})
		}()
		testkit.ErrorIs(t, <-done, broken)
		testkit.Equal(t, f.pass(time.Second)["a"], 256)
	})
}

// TestP5_TheFenceClosesBeforeTheRelease: the judge of the network checks each stored assignment,
// with work that goes on during moves.
func TestP5_TheFenceClosesBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		_, done := busy(t, a)
		f.start("b", shard.Options{})
		f.pass(30 * time.Second)
		done()
		f.passUntil("two members", time.Second, even(2, 256))
	})
}
