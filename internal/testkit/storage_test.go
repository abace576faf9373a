// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStorage: each value of the variable is a form.
func TestStorage(t *testing.T) {
	for value, want := range map[string]cache.Storage{"": cache.DefaultStorage, "decoded": cache.Decoded, "packed": cache.Packed} {
		t.Setenv("SETPOINT_STORAGE", value)
		if got := Storage(); got != want {
			t.Errorf("%q is %s, want %s", value, got, want)
		}
	}
}
