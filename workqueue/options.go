// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/setpoint-dev/setpoint/hook"
)

const (
	defaultReasons = 8
	maxReasons     = 1000
	maxClasses     = 8
	minWeight      = 1e-6
	maxWeight      = 1e6
)

// Options configure a Queue. The zero value is a plain FIFO queue.
//
// The queue calls the functions concurrently, without its lock, and recovers their panics.
type Options[K comparable] struct {
	// Name appears in events, snapshots and errors. Default "".
	Name string

	// Classes are at most 8 classes with their weights, such as ThreeClasses (the default in
	// package controller). Default nil: one order for all adds and retries; AddOptions.Class has no
	// effect.
	Classes []ClassWeight

	// Tenant returns the tenant of a key, always the same, for example its namespace or cluster.
	// Tenants with ready keys share the deliveries of a class by weight, however many keys each
	// has. Default nil: all keys share the tenant "".
	Tenant func(key K) string

	// TenantWeight returns a tenant's weight. A value that is not between 0.000001 and 1000000
	// counts as 1. It is called with each Tenant and should be quick. A tenant that has keys keeps
	// its weight. Default nil: all weights are 1.
	TenantWeight func(tenant string) float64

	// Backoff is how long a key waits after a failure. Default Exponential{}.
	Backoff Backoff

	// Limiter limits the retries of all keys per second, to protect what a Reconcile calls. A retry
	// waits for the longer of Backoff and Limiter. Default nil: no limit. If Classes is set, adds
	// overtake retries anyway. (client-go's default is 10 per second after the first 100: of 10,000
	// keys that fail together, the last is retried after 990 s, see package bench.)
	Limiter *rate.Limiter

	// MinInterval is how long an added key waits before it is ready, so that many adds become one
	// delivery. It is also the least time between such deliveries. Retry, After, Wake and
	// RequeueNow are not delayed. Default 0.
	MinInterval time.Duration

	// MaxWait makes MinInterval a debounce. Each add postpones the delivery until MinInterval after
	// that add, but at most until MaxWait after the first add. Default MinInterval: no debounce.
	MaxWait time.Duration

	// Reasons is how many of its newest reasons a key keeps in addition to the first. Those in
	// between are counted. Equal reasons in a row count as one (Reason.Repeats). Default 0: 8. At
	// most 1000.
	//
	// Negative: no reasons. Without observers, the queue also reads the clock less often: an add, a
	// Get and a settle take about a fifth less time, but Item.Queued and KeyState.Since are zero.
	Reasons int

	// Hook gets the queue's events. Default: none.
	Hook *hook.Hook

	// Own reports whether an immediate add (AddOptions.After <= 0) of a key only echoes what a
	// delivery of the key did itself. Such an add does not end the backoff after Retry. If within
	// is positive, the add may be another client's: it delivers the key within this time, also
	// after GiveUp, unless something else does before. Default nil: no add is own.
	//
	// When Retry or GiveUp settles a key, Own is called for the adds that arrived while it was
	// held. If all are own and nothing else requested a delivery, they are dropped with their
	// reasons, but for the one with the smallest positive within. During the backoff and after
	// GiveUp, paused or not, each own add is dropped or waits in this way. If a held key gets more
	// than 10,000 adds (equal reasons in a row count once), no add is own.
	Own func(key K, delivery uint64, reason Reason) (own bool, within time.Duration)
}

// Validate returns an error that names each invalid field, its value and the allowed range, or nil.
func (o Options[K]) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("workqueue %q: "+format, append([]any{o.Name}, args...)...))
	}
	if len(o.Classes) > maxClasses {
		wrong("Classes has %d entries, at most %d are allowed", len(o.Classes), maxClasses)
	}
	seen := map[Class]bool{}
	for i, s := range o.Classes {
		if !validWeight(s.Weight) {
			wrong("Classes[%d].Weight is %v, must be between 0.000001 and 1000000", i, s.Weight)
		}
		if seen[s.Class] {
			wrong("Classes[%d].Class is %v, which an earlier entry has already", i, s.Class)
		}
		seen[s.Class] = true
	}
	if o.TenantWeight != nil && o.Tenant == nil {
		wrong("TenantWeight is set but Tenant is not")
	}
	if v, ok := o.Backoff.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			wrong("Backoff: %w", err)
		}
	}
	if o.Limiter != nil && o.Limiter.Limit() != rate.Inf && (o.Limiter.Burst() < 1 || !(o.Limiter.Limit() > 0)) {
		wrong("Limiter allows nothing: its limit is %v and its burst %d", o.Limiter.Limit(), o.Limiter.Burst())
	}
	if o.MinInterval < 0 {
		wrong("MinInterval is %v, must not be negative", o.MinInterval)
	}
	if o.MaxWait != 0 && o.MaxWait < o.MinInterval || o.MaxWait < 0 {
		wrong("MaxWait is %v, must be zero or at least MinInterval (%v)", o.MaxWait, o.MinInterval)
	}
	if o.MaxWait != 0 && o.MinInterval == 0 {
		wrong("MaxWait is set but MinInterval is not")
	}
	if o.Reasons > maxReasons {
		wrong("Reasons is %d, at most %d are allowed", o.Reasons, maxReasons)
	}
	return errors.Join(errs...)
}

func validWeight(w float64) bool {
	return !math.IsNaN(w) && w >= minWeight && w <= maxWeight
}
