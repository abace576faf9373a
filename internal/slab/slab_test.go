// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slab_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/slab"
	"github.com/setpoint-dev/setpoint/internal/testkit"
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
	testkit.Equal(t, s.Len(), 3*slab.ChunkLen/2, "values in use")
	for range 3 * slab.ChunkLen / 2 {
		i, v := s.Take()
		testkit.Equal(t, *v, 0, fmt.Sprintf("value %d has the content of an earlier one", i))
	}
	testkit.Equal(t, s.End(), end, fmt.Sprintf("the slab has grown from %d to", end))
}
