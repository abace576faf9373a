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

// limitsOf divides a RenewDeadline. Four parts leave half of it for another attempt.
func limitsOf(renew, parts time.Duration) limits {
	part := min(max(cmp.Or(renew, renewDeadline)/parts, shortest), longest)
	return limits{part, part}
}
