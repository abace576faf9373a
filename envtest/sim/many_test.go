// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"testing"
	"time"
)

// TestThousandTests: 1,000 tests in one package, half with a manager and 100 objects, and half with
// a single Reconcile, need less than 30 seconds.
func TestThousandTests(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs seconds")
	}
	begin := time.Now()
	for i := range 1000 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if i%2 == 0 {
				converge(t, 100)
			} else {
				single(t)
			}
		})
	}
	took := time.Since(begin)
	t.Logf("1,000 tests took %v", took.Round(time.Millisecond))
	if took > 30*time.Second {
		t.Errorf("1,000 tests took %v", took)
	}
}
