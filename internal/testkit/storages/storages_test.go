// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package storages

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Main{m}) }

// seen has the storages of the runs so far.
var seen []cache.Storage

// TestStorages: each run has another storage, in the order of the table.
func TestStorages(t *testing.T) {
	if len(seen) == 0 || seen[len(seen)-1] != Current() { // not once more with -count
		seen = append(seen, Current())
	}
	if !slices.Equal(seen, storages[:len(seen)]) {
		t.Errorf("the runs had %v, want %v", seen, storages)
	}
}
