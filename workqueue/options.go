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

// Options configure a Queue. The zero value is a plain first-in-first-out queue: one class, one tenant, exponential
// backoff per key from 5 ms to 1000 s, no overall limit.
//
// The queue calls the funcs in here without its lock, from the goroutine that uses the queue, several at once. A func
// that panics is recovered and counted (Snapshot.Panics), reported to hook.Queue.Panicked, and taken to have returned
// the zero value.
type Options[K comparable] struct {
	// Name names the queue in hooks, snapshots and errors. Default "".
	Name string

	// Classes gives each class its weight, at most 8 of them. While adds and retries of a class are
	// ready, every fifth delivery of the class is a retry. Default nil: one class and one order for
	// adds and retries, so that AddOptions.Class has no effect. ThreeClasses is a good start; package
	// controller uses it by default.
	Classes []ClassWeight

	// Tenant says whose key it is, for instance its namespace or its cluster. Ready keys of the tenants of one
	// class leave in proportion to the tenants' weights (W7), however many keys each of them has. It must always
	// return the same for the same key: an add of a key that the queue knows does not ask again. Default nil: all
	// keys share one tenant, "".
	Tenant func(key K) string

	// TenantWeight gives a tenant its weight, relative to the others; what is not between 0.000001 and 1000000
	// counts as 1. It is called wherever Tenant is and should be quick; a tenant that has keys keeps the weight that
	// it started with. Default nil: all weights are 1.
	TenantWeight func(tenant string) float64

	// Backoff says how long a key waits after a failure. Default Exponential{}.
	Backoff Backoff

	// Limiter bounds how many retries of all keys together become ready in a second; a retry waits
	// for the longer of Backoff and Limiter. Adds need no such bound to get ahead of retries if
	// Classes is set. Use it to protect what a Reconcile calls. Default nil: no bound. (client-go's
	// default is 10 per second after the first 100: of 10,000 keys that fail together, the last is
	// retried after 990 s, see package bench.)
	Limiter *rate.Limiter

	// MinInterval is how long a key that was added stays waiting before it is ready, so that many adds become one
	// delivery; deliveries that adds have caused are at least this far apart. It holds for adds alone: a key's own
	// Retry and After, and Wake and RequeueNow, are not delayed by it. Default 0: none.
	MinInterval time.Duration

	// MaxWait turns MinInterval into a debounce: each further add puts the delivery off to MinInterval from then,
	// but to no later than MaxWait after the first. Default 0: the same as MinInterval, nothing is put off.
	MaxWait time.Duration

	// Reasons is how many reasons a key keeps besides its first one: the newest. The number of those between, which
	// are dropped, is kept too. Equal ones in a row are one (Reason.Repeats). Default 0: 8. At most 1000. Negative:
	// none are recorded at all, and unless Hooks is set neither is since when a key is in its state (Item.Queued,
	// KeyState.Since): an add then does not read the clock, which takes about a fifth of the time of adding, taking
	// and settling a key.
	Reasons int

	// Hooks observe the queue. Default nil: nothing is observed.
	Hooks *hook.Queue

	// Own reports whether an immediate add (AddOptions.After <= 0) of a key only echoes what a delivery of
	// the key did itself. The queue asks it about a delivery that is settled with Retry, so that an
	// own add does not cut the backoff short.
	//
	// The adds that arrived while the key was held are asked about before it is settled, also those
	// that arrive meanwhile. If all are own and nothing else asks for the key, they are dropped with
	// their reasons. An add that arrives later, while the key waits in its backoff, paused or not,
	// is asked about at once, and dropped if it is own. A key that was added more than 10,000 times
	// while it was held, equal reasons in a row not counted, is not asked about. Default nil: no add
	// is own.
	Own func(key K, delivery uint64, reason Reason) bool
}

// Validate returns an error that names each field that is wrong, or nil.
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
