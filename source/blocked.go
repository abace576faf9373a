// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"sync/atomic"
	"time"
)

// blockedAfter is the interval at which a source checks whether its handler is still in the same
// call. So a blocked handler is reported after one to two intervals.
const blockedAfter = 5 * time.Second

// calls counts calls of the handler and predicates: two atomic operations per event.
type calls struct {
	entered, left atomic.Uint64
	blocked       atomic.Bool // one has not returned for at least blockedAfter
}

// stuck reports whether a call is in progress and none has ended since left was before.
func (c *calls) stuck(before uint64) (left uint64, stuck bool) {
	left = c.left.Load()
	return left, c.entered.Load() > left && left == before
}

func (c *calls) watch(ctx context.Context, to reports) {
	ticker := time.NewTicker(blockedAfter)
	defer ticker.Stop()
	busy, told := false, false
	for before := uint64(0); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		left, stuck := c.stuck(before)
		if stuck && busy && !told {
			to.HandlerBlocked(blockedAfter)
		}
		told = stuck && (busy || told)
		c.blocked.Store(told)
		before, busy = left, c.entered.Load() > left
	}
}
