// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestP7_SelectorsHaveEachWantedSlot: both selectors select at least the wanted slots, and are
// short enough for proxies.
func TestP7_SelectorsHaveEachWantedSlot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := Selection{Label: "slot.setpoint.dev/" + strings.Repeat("x", 63), Ranges: true, Values: &[256]string{}}
	for slot := range s.Values {
		s.Values[slot] = fmt.Sprintf("%s.%d", strings.Repeat("x", 40), slot)
	}
	for n := range 100 {
		p := newPortion(&Part{Selection: s}, nil, &Slots{})
		p.Owner.Kind = "Owner"
		for slot := range p.phases {
			p.phases[slot] = phase(min(random.IntN(257)/(3*n+1), 1) * int(kept))
		}
		o := p.narrow(metav1.ListOptions{LabelSelector: "a=b"})
		if length := len(url.QueryEscape(o.LabelSelector)) + len(url.QueryEscape(o.ShardSelector)); length > longest+200 {
			t.Fatalf("%d bytes", length)
		}
		byLabel, err := labels.Parse(o.LabelSelector)
		if err != nil {
			t.Fatal(err)
		}
		for slot, now := range p.phases {
			byRange := o.ShardSelector == "" || selects(t, o.ShardSelector, slot)
			if byRange != p.asked[slot] || now == kept && !byRange {
				t.Fatalf("slot %d: asked for %t, and the selector is %s", slot, p.asked[slot], o.ShardSelector)
			}
			if now == kept && !byLabel.Matches(labels.Set{"a": "b", s.Label: s.Values[slot]}) {
				t.Errorf("slot %d is not in %s", slot, o.LabelSelector)
			}
		}
		if !byLabel.Matches(labels.Set{"a": "b"}) || byLabel.Matches(labels.Set{}) {
			t.Errorf("got %s", o.LabelSelector)
		}
	}
}

// selects reports whether a shard selector has the first and the last hash of a slot.
func selects(t *testing.T, selector string, slot int) bool {
	t.Helper()
	for r := range strings.SplitSeq(selector, " || ") {
		bounds := strings.Split(r, "'")
		from, err := strconv.ParseUint(bounds[1][2:], 16, 64)
		if err != nil || len(bounds[1]) != 18 {
			t.Fatal(r)
		}
		to, err := strconv.ParseUint(bounds[3][2:], 16, 64)
		switch {
		case bounds[3] == "0x10000000000000000":
			to = 0 // minus one is the last hash
		case err != nil || len(bounds[3]) != 18:
			t.Fatal(r)
		}
		if first, last := uint64(slot)<<56, uint64(slot)<<56+(1<<56-1); from <= first && last <= to-1 {
			return true
		}
	}
	return false
}
