// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func equalWeights(n int) map[string]int {
	weights := map[string]int{}
	for i := range n {
		weights["m"+strconv.Itoa(i)] = 1
	}
	return weights
}

func counts(o Owners) map[string]int {
	count := map[string]int{}
	for _, name := range o {
		count[name]++
	}
	return count
}

// moves returns the number of slots that each member gains and loses.
func movesOf(a, b Owners) map[string]int {
	moves := map[string]int{}
	for s := range a {
		if a[s] != b[s] {
			moves[a[s]]++
			moves[b[s]]++
		}
	}
	delete(moves, "")
	return moves
}

// mostKept returns how many owners a balanced result can keep at most, by trying all of them.
func mostKept(previous Owners, weights map[string]int) int {
	names, sum := slices.Sorted(maps.Keys(weights)), 0
	for _, w := range weights {
		sum += w
	}
	has, best := counts(previous), -1
	for up := range 1 << len(names) { // the members whose share is rounded up
		total, kept := 0, 0
		for i, name := range names {
			quota := Slots * weights[name] / sum
			if up>>i&1 == 1 {
				if Slots*weights[name]%sum == 0 {
					total = -Slots
				}
				quota++
			}
			total, kept = total+quota, kept+min(quota, has[name])
		}
		if total == Slots {
			best = max(best, kept)
		}
	}
	return best
}

// FuzzP6_Desired checks P6: the result is balanced, keeps as many owners as possible, is stable,
// and depends on nothing else.
func FuzzP6_Desired(f *testing.F) {
	f.Add([]byte{1, 1, 1}, []byte{})
	f.Add([]byte{1, 1, 1, 1, 1}, []byte{0, 1, 2, 3})
	f.Add([]byte{1, 2, 3, 255}, []byte{0, 0, 0, 0, 9, 9, 1})
	f.Add([]byte{0, 0}, []byte{1})
	f.Add([]byte{7}, []byte{3, 3, 3})
	f.Add([]byte{200, 1, 1, 1, 1, 1, 1, 1}, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, weightsOf, owners []byte) {
		weights, previous := map[string]int{}, Owners{}
		for i, w := range weightsOf[:min(len(weightsOf), 8)] {
			if w > 0 {
				weights["m"+strconv.Itoa(i)] = int(w)
			}
		}
		for s := range previous {
			if len(owners) > 0 && owners[s%len(owners)] < 10 { // 8 and 9 are not members any more
				previous[s] = "m" + strconv.Itoa(int(owners[s%len(owners)]))
			}
		}
		got := Desired(previous, weights)
		if len(weights) == 0 {
			if got != (Owners{}) {
				t.Fatalf("without members, there are owners: %v", got)
			}
			return
		}
		if !balanced(got, weights) {
			t.Fatalf("not in balance for %v: %v", weights, counts(got))
		}
		kept := 0
		for s := range got {
			if got[s] == previous[s] {
				kept++
			}
		}
		if most := mostKept(previous, weights); kept != most {
			t.Fatalf("%v keeps %d owners; %d are possible", weights, kept, most)
		}
		if again := Desired(previous, maps.Clone(weights)); again != got {
			t.Fatal("equal arguments give another result")
		}
		if next := Desired(got, weights); next != got {
			t.Fatalf("a balanced result is changed: %v", movesOf(got, next))
		}
	})
}

// TestP6_AChangeOfMembersMovesFewSlots: one member joins or leaves a balanced group of up to 300.
func TestP6_AChangeOfMembersMovesFewSlots(t *testing.T) {
	for n := 1; n <= 300; n++ {
		few, many := equalWeights(n), equalWeights(n+1)
		limit := (Slots+n)/(n+1) + 1
		before := Desired(Owners{}, few)
		for name, moves := range movesOf(before, Desired(before, many)) {
			if moves > limit {
				t.Errorf("member %d joins, and %s has %d moves; the limit is %d", n+1, name, moves, limit)
			}
		}
		before = Desired(Owners{}, many)
		for name, moves := range movesOf(before, Desired(before, few)) {
			if moves > limit {
				t.Errorf("of %d members one leaves, and %s has %d moves; the limit is %d", n+1, name, moves, limit)
			}
		}
	}
}

func TestDesired_WeightsShareTheSlots(t *testing.T) {
	got := counts(Desired(Owners{}, map[string]int{"small": 1, "big": 3, "none": 0, "less": -5}))
	testkit.DeepEqual(t, got, map[string]int{"small": 64, "big": 192})
}

func BenchmarkDesired(b *testing.B) {
	before, weights := Desired(Owners{}, equalWeights(5)), equalWeights(6)
	for b.Loop() {
		Desired(before, weights)
	}
}
