// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff determines how long a failed key waits. It is called concurrently, without the queue's
// lock.
type Backoff interface {
	// Delay returns the delay after a key's n-th failure in a row, n >= 1. Zero or negative: none.
	Delay(n int) time.Duration
}

// Exponential is a Backoff that doubles: Base, 2 Base, 4 Base, ... up to Max. It has the defaults
// of client-go's ItemExponentialFailureRateLimiter in kube-controller-manager.
type Exponential struct {
	// Base is the delay after the first failure. Default 5 ms.
	Base time.Duration
	// Max is the longest delay. Default 1000 s, or Base if that is longer.
	Max time.Duration
	// Jitter, between 0 and 1, shortens each delay by a random part of up to this fraction. Keys
	// that failed together are then retried at different times. Default 0.
	Jitter float64
}

// Delay implements Backoff. It treats n < 1 as 1.
func (e Exponential) Delay(n int) time.Duration {
	base := cmp.Or(e.Base, 5*time.Millisecond)
	most := cmp.Or(e.Max, max(base, 1000*time.Second))
	d := most
	n = max(n, 1)
	if n <= 63 && base <= most>>(n-1) {
		d = base << (n - 1)
	}
	if e.Jitter > 0 {
		d -= time.Duration(float64(d) * e.Jitter * rand.Float64())
	}
	return d
}

// Validate returns an error that names the first invalid field and the allowed range, or nil.
func (e Exponential) Validate() error {
	switch {
	case e.Base < 0:
		return fmt.Errorf("Base is %v, must not be negative", e.Base)
	case e.Max < 0 || e.Max != 0 && e.Max < e.Base:
		return fmt.Errorf("Max is %v, must be zero or at least Base (%v)", e.Max, e.Base)
	case math.IsNaN(e.Jitter) || e.Jitter < 0 || e.Jitter > 1:
		return fmt.Errorf("Jitter is %v, must be between 0 and 1", e.Jitter)
	}
	return nil
}
