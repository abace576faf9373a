// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "testing"

func TestQueueOutcomeString(t *testing.T) {
	for o, want := range map[QueueOutcome]string{
		QueueDone: "Done", QueueRetry: "Retry", QueueAfter: "After", QueuePark: "Park", QueueRelease: "Release", 99: "unknown",
	} {
		if got := o.String(); got != want {
			t.Errorf("outcome %d is %q, want %q", o, got, want)
		}
	}
}
