// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slab_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/slab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSlab_ReusesWhatIsGivenBack: values keep their place, and a slab grows to its peak only.
func TestSlab_ReusesWhatIsGivenBack(t *testing.T) {
	var s slab.Slab[int]
	if s.Has(0) || s.End() != 0 || s.Len() != 0 {
		t.Error("an empty slab has values")
	}
	all := map[uint32]*int{}
	for n := range 3 * slab.ChunkLen {
		i, v := s.Take()
		if i == 0 || all[i] != nil {
			t.Fatalf("index %d twice, or 0", i)
		}
		*v, all[i] = n, v
	}
	end := s.End()
	for i, v := range all {
		if s.At(i) != v {
			t.Fatalf("value %d has moved", i)
		}
		if *v%2 == 0 {
			s.Put(i)
		}
	}
	if n := s.Len(); n != 3*slab.ChunkLen/2 {
		t.Errorf("%d values in use, want half of all", n)
	}
	for range 3 * slab.ChunkLen / 2 {
		if i, v := s.Take(); *v != 0 {
			t.Errorf("value %d has the content %d of an earlier one", i, *v)
		}
	}
	if s.End() != end {
		t.Errorf("the slab has grown from %d to %d", end, s.End())
	}
}
