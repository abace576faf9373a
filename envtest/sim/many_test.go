// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var manyTests = flag.Int("many", 40, "the number of tests in TestManyTests")

// TestManyTests: many tests of one package, half with a manager and 100 objects, half with a single
// Reconcile. With -many 1000 -v it prints how long 1,000 tests take.
func TestManyTests(t *testing.T) {
	begin := time.Now()
	for i := range *manyTests {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if i%2 == 0 {
				converge(t, 100)
			} else {
				single(t)
			}
		})
	}
	t.Logf("%d tests took %v", *manyTests, time.Since(begin).Round(time.Millisecond))
}
