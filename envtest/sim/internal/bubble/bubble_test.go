// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package bubble_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInside(t *testing.T) {
	if bubble.Inside() {
		t.Error("a test is in a bubble before it makes one")
	}
	synctest.Test(t, func(t *testing.T) {
		if !bubble.Inside() {
			t.Error("a bubble is not found")
		}
	})
}
