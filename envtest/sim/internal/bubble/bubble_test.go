// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package bubble_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/bubble"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInside(t *testing.T) {
	testkit.Equal(t, bubble.Inside(), false, "before a bubble")
	synctest.Test(t, func(t *testing.T) {
		testkit.Equal(t, bubble.Inside(), true, "in a bubble")
	})
}
