// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/sharding"
)

// Selection describes how an API server selects slots. The server may send other slots, too: an
// older one ignores shardSelector, and objects without the label are in every selection. So the
// client filters what arrives. The zero value selects everything.
type Selection struct {
	// Label is the key of a label, and Values its value for each slot. Default: no label.
	Label  string
	Values *[256]string
	// Ranges reports that a slot is the highest byte of the FNV-1a 64 of the object's namespace.
	Ranges bool
}

const (
	// longest is the length of both selectors in bytes, escaped. Many proxies limit the line of a
	// request to 8 KiB.
	longest = 7 << 10
	// mostRanges take less than 6 KiB, escaped.
	mostRanges = 56
)

func (s Selection) none() bool { return s.Label == "" && !s.Ranges }

// Hides reports whether the API server does not send an object with these labels, because they
// select a slot that is not wanted.
func (s Selection) Hides(labels map[string]string, wanted *Slots) bool {
	value := labels[s.Label]
	if value == "" || s.Label == "" {
		return false
	}
	slot := slices.Index(s.Values[:], value)
	return slot >= 0 && !wanted[slot]
}

// labels returns a label selector for some slots and for objects without the label. If it would be
// longer than most, it also selects some other slots.
func (s Selection) labels(slots *Slots, most int) string {
	var others []string
	length := len(s.Label)
	for slot, in := range slots {
		if in || s.Label == "" {
			continue
		}
		if length += len(url.QueryEscape("," + s.Values[slot])); length > most {
			break
		}
		others = append(others, s.Values[slot])
	}
	if len(others) == 0 {
		return ""
	}
	return s.Label + " notin (" + strings.Join(others, ",") + ")"
}

// shard returns a shard selector for some slots, and the slots that it selects: with many ranges,
// also those between two ranges.
func (s Selection) shard(slots *Slots) (selector string, selected Slots) {
	all := rangesOf(slots)
	if !s.Ranges || len(all) == 1 && all[0] == (span{0, len(slots)}) {
		for slot := range selected {
			selected[slot] = true
		}
		return "", selected
	}
	var ranges []sharding.ShardRangeRequirement
	for _, r := range merge(all, mostRanges) {
		for slot := r.from; slot < r.to; slot++ {
			selected[slot] = true
		}
		ranges = append(ranges, sharding.ShardRangeRequirement{Key: "object.metadata.namespace", Start: bound(r.from), End: bound(r.to)})
	}
	return sharding.NewSelector(ranges...).String(), selected
}

func bound(slot int) string { return fmt.Sprintf("0x%02x00000000000000", slot) }

// span is the slots from a slot to another one, which is not included.
type span struct{ from, to int }

// rangesOf returns the slots as ranges. An empty selector would select everything, so without slots
// it returns one.
func rangesOf(slots *Slots) (all []span) {
	for slot, in := range slots {
		switch last := len(all) - 1; {
		case !in:
		case last >= 0 && all[last].to == slot:
			all[last].to++
		default:
			all = append(all, span{slot, slot + 1})
		}
	}
	if len(all) == 0 {
		all = []span{{0, 1}}
	}
	return all
}

// merge joins the nearest ranges until there are at most n.
func merge(all []span, n int) []span {
	if len(all) <= n {
		return all
	}
	gap := func(i int) int { return all[i+1].from - all[i].to }
	nearest := make([]int, len(all)-1)
	for i := range nearest {
		nearest[i] = i
	}
	slices.SortStableFunc(nearest, func(a, b int) int { return cmp.Compare(gap(a), gap(b)) })
	joined := map[int]bool{}
	for _, i := range nearest[:len(all)-n] {
		joined[i] = true
	}
	var fewer []span
	for i, r := range all {
		if i > 0 && joined[i-1] {
			fewer[len(fewer)-1].to = r.to
			continue
		}
		fewer = append(fewer, r)
	}
	return fewer
}
