// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"cmp"
	"maps"
	"slices"
)

// Owners names the member of each slot, or "" for none.
type Owners [Slots]string

// Desired returns the owners that members with these weights should have. It is a pure function:
// equal arguments give equal results.
//
//   - Balance: a member gets its share of the slots by weight, rounded up or down.
//   - Few moves: no other balanced result keeps more of the previous owners.
//
// Members with a weight below 1 get no slot. Without members, no slot has an owner.
func Desired(previous Owners, weights map[string]int) Owners {
	left := quotas(previous, weights)
	next := Owners{}
	for s, name := range previous {
		if left[name] > 0 {
			next[s] = name
			left[name]--
		}
	}
	var wanted []string // a name for each slot that a member still gets
	for _, name := range slices.Sorted(maps.Keys(left)) {
		wanted = append(wanted, slices.Repeat([]string{name}, left[name])...)
	}
	for s := range next {
		if next[s] == "" && len(wanted) > 0 {
			next[s], wanted = wanted[0], wanted[1:]
		}
	}
	return next
}

// quotas returns the number of slots of each member. Shares are rounded down. What remains goes to
// members that would otherwise lose a slot, then by the largest remainder, then by name.
func quotas(previous Owners, weights map[string]int) map[string]int {
	type share struct {
		name      string
		loses     int // 1 if the share, rounded down, is less than what it has
		remainder int
	}
	count, sum := map[string]int{}, 0
	for _, name := range previous {
		count[name]++
	}
	for _, w := range weights {
		sum += max(w, 0)
	}
	quota, rest := map[string]int{}, Slots
	var shares []share
	for name, w := range weights {
		if w > 0 {
			n, remainder := Slots*w/sum, Slots*w%sum
			quota[name], rest = n, rest-n
			if remainder > 0 {
				shares = append(shares, share{name, min(1, max(0, count[name]-n)), remainder})
			}
		}
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.loses, a.loses), cmp.Compare(b.remainder, a.remainder), cmp.Compare(a.name, b.name))
	})
	for _, s := range shares[:min(rest, len(shares))] {
		quota[s.name]++
	}
	return quota
}
