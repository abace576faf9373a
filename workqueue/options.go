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

// Options configure a Queue. The zero value is a plain FIFO queue: one class, one tenant,
// exponential backoff per key from 5 ms to 1000 s, and no overall limit.
//
// The queue calls the functions in Options without its lock, from the goroutines that use the
// queue, concurrently. A function that panics is recovered, counted (Snapshot.Panics) and reported
// (hook.Queue.Panicked). It counts as having returned its zero value.
type Options[K comparable] struct {
	// Name is the queue's name in hooks, snapshots and errors. Default "".
	Name string

	// Classes are the classes and their weights, at most 8. Start with ThreeClasses, the default of
	// package controller. While adds and retries of a class are ready, every fifth delivery of the
	// class is a retry. Default nil: one class, and one order for adds and retries;
	// AddOptions.Class then has no effect.
	Classes []ClassWeight

	// Tenant returns the tenant of a key, for example its namespace or its cluster. Tenants with
	// ready keys share the deliveries of a class by weight, however many keys each has. The
	// function must always return the same tenant for a key; the queue does not call it for every
	// add. Default nil: all keys share the tenant "".
	Tenant func(key K) string

	// TenantWeight returns a tenant's weight relative to the others. A value that is not between
	// 0.000001 and 1000000 counts as 1. It should be quick: it is called whenever Tenant is. A new
	// weight applies once the tenant has no more keys in the queue. Default nil: all weights are 1.
	TenantWeight func(tenant string) float64

	// Backoff returns how long a key waits after a failure. Default Exponential{}.
	Backoff Backoff

	// Limiter limits how many retries of all keys together become ready per second, to protect the
	// systems that a Reconcile calls. A retry waits for the longer of Backoff and Limiter. If
	// Classes is set, adds overtake retries without it. Default nil: no limit. (client-go's default
	// is 10 per second after the first 100: if 10,000 keys fail together, the last is retried after
	// 990 s, see package bench.)
	Limiter *rate.Limiter

	// MinInterval is the time that an added key waits before it is ready, so that many adds become
	// one delivery. Deliveries caused by adds are at least this far apart. It does not delay Retry,
	// After, Wake or RequeueNow. Default 0.
	MinInterval time.Duration

	// MaxWait makes MinInterval a debounce: each further add postpones the delivery to MinInterval
	// from then, but to at most MaxWait after the first add. Default 0: the same as MinInterval, so
	// adds postpone nothing.
	MaxWait time.Duration

	// Reasons is how many reasons a key keeps besides its first one: the newest. Those between are
	// counted. Equal reasons in a row are one reason (Reason.Repeats). Default 0: 8. At most 1000.
	//
	// Negative: none are recorded. Unless Hooks is set, the queue then also does not read the
	// clock, which is about a fifth of the time of adding, taking and settling a key. Item.Queued
	// and KeyState.Since are zero then.
	Reasons int

	// Hooks observe the queue. Default nil: none.
	Hooks *hook.Queue

	// Own reports whether an immediate add (AddOptions.After <= 0) of a key only echoes what a
	// delivery of the key did itself. Such an add does not shorten the backoff after Retry. Default
	// nil: no add is own.
	//
	// Before a Retry settles a key, the queue calls Own for the adds that arrived while the key was
	// held. If all are own and nothing else requested a delivery, they are dropped with their
	// reasons. For an add during the backoff, paused or not, the queue calls Own at once, and drops
	// the add if it is own.
	//
	// If a key is added more than 10,000 times while it is held (equal reasons in a row count
	// once), these adds all count as not own.
	Own func(key K, delivery uint64, reason Reason) bool
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
