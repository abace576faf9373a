// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// call is a call of a function that may hang. It runs in a goroutine of its own.
type call struct {
	began time.Time
	done  chan struct{} // closed when it has returned
	err   error         // then
}

// caller makes one call at a time.
type caller struct{ last atomic.Pointer[call] }

// begin calls f in a goroutine of all. If a call is under way, or the last one began less than pause
// ago, it returns that one instead.
func (c *caller) begin(all *sync.WaitGroup, pause time.Duration, f func() error) *call {
	last := c.last.Load()
	if last != nil && (!run.Closed(last.done) || time.Since(last.began) < pause) {
		return last
	}
	next := &call{began: time.Now(), done: make(chan struct{}), err: fmt.Errorf("it %w", run.ErrExited)}
	if !c.last.CompareAndSwap(last, next) {
		return c.last.Load()
	}
	all.Go(func() {
		defer close(next.done)
		next.err = f()
	})
	return next
}

// returned reports whether the call has returned. It waits for that until limit after its beginning.
func (c *call) returned(limit time.Duration) bool {
	late := time.NewTimer(time.Until(c.began.Add(limit)))
	defer late.Stop()
	select {
	case <-c.done:
	case <-late.C:
	}
	return run.Closed(c.done)
}

// outcome returns the error of the call, or that it has not returned within the limit.
func (c *call) outcome(limit time.Duration) error {
	if !c.returned(limit) {
		return fmt.Errorf("it has not answered for %s", time.Since(c.began).Round(time.Millisecond))
	}
	return c.err
}
