// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"cmp"
	"time"
)

// limits of an HTTP/2 connection: after idle without a frame it gets a ping. If no answer comes
// within answer, it is closed.
type limits struct{ idle, answer time.Duration }

const (
	// renewDeadline is the default of the electors, here and in client-go.
	renewDeadline = 10 * time.Second
	// A shorter limit would close connections of a process that only waits for a processor. A
	// longer one than client-go's would be no improvement.
	shortest, longest = 500 * time.Millisecond, 15 * time.Second
)

// leaseLimits leave half of the RenewDeadline for another attempt.
func leaseLimits(renew time.Duration) limits {
	part := cmp.Or(renew, renewDeadline) / 4
	part = min(max(part, shortest), longest)
	return limits{part, part}
}

func requestLimits(renew time.Duration) limits {
	part := cmp.Or(renew, renewDeadline) / 2
	part = min(max(part, shortest), longest)
	return limits{part, part}
}
