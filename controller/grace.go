// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"
)

// withGrace returns a context that outlives ctx by grace, and then ends with a cause that says so. cancel ends it earlier and
// must be called.
func withGrace(ctx context.Context, grace time.Duration) (work context.Context, cancel func()) {
	work, end := context.WithCancelCause(context.WithoutCancel(ctx))
	expire := func() { end(fmt.Errorf("the grace time of %s is over: %w", grace, context.Canceled)) }
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, expire) }) // expiring twice, or late, does nothing
	return work, func() {
		stop()
		end(nil)
	}
}
