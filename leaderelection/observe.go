// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/hook"
)

// ObserveOptions configures Observe. The durations must be those of the host's elector: of client-go's LeaderElectionConfig, or of
// the LeaderElectionConfiguration in component-base, whose fields have the same names (there with .Duration). The zero value is
// what both default to. An elector with a shorter LeaseDuration than this one is refused the Lease: a term would be trusted when
// somebody else may lead.
type ObserveOptions struct {
	// LeaseDuration is how long the Lease stays its holder's when it is not renewed. Default: 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is for how long the host tries to renew before it gives up. The term is lost RetryPeriod and RenewDeadline after the
	// last renewal that succeeded was sent; the rest of LeaseDuration is the time in which work has to stop. Default: 10 s.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between two renewals. Default: 2 s.
	RetryPeriod time.Duration
	// Grace is for how long work may go on after the term was lost, before Check fails. Default: 20 s.
	Grace time.Duration
	// Hooks observes the terms. Campaigning, Cold and Trouble are not called: the host knows. Default: nobody does.
	Hooks *hook.LeaderElection
}

// options are those of an elector with the same durations.
func (o ObserveOptions) options() Options {
	return Options{
		Lease: "host", Namespace: "host", Identity: "host", Grace: o.Grace, Hooks: o.Hooks,
		LeaseDuration: cmp.Or(o.LeaseDuration, 15*time.Second),
		RenewDeadline: cmp.Or(o.RenewDeadline, 10*time.Second),
		RetryPeriod:   cmp.Or(o.RetryPeriod, 2*time.Second),
	}.withDefaults()
}

// Validate names each field that is wrong, after defaults.
func (o ObserveOptions) Validate() error {
	err := o.options().validateTimes()
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "leaderelection.Options.", "leaderelection.ObserveOptions."))
}

// Observe wraps a host's lock, so that client-go's elector, which the host runs on, drives our terms and the fence (L2):
//
//	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, …)
//	observed, err := leaderelection.Observe(lock, leaderelection.ObserveOptions{LeaseDuration: …, RenewDeadline: …, RetryPeriod: …})
//	clientgo.RunOrDie(ctx, clientgo.LeaderElectionConfig{
//		Lock: observed, ReleaseOnCancel: true, …
//		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) {
//			err := observed.Lead(ctx, func(take, work context.Context) error { return c.Lead(take, work) })
//			…
//		}, …},
//	})
//
// The wrapper makes no request of its own. It times those of the elector: the trust counts from the start of the last Create or
// Update that succeeded and holds. How the Lease is won stays the elector's business; how a term ends is ours:
//
//   - The term is lost RetryPeriod and RenewDeadline after that start, however late answers come (client-go counts from the answer),
//     when somebody else is seen to hold the Lease, or it was deleted or made anew. What leads is cancelled with cause ErrLost, and
//     the elector is refused further renewals, so that it gives up, too.
//   - A release (ReleaseOnCancel) waits until what leads has returned (L3), as long as the elector's request lasts (client-go:
//     RenewDeadline) and the term is trusted; else it is refused, and the Lease expires.
//   - A Lease that is not ours is not released (L4), although client-go would.
//   - What was written under the term is noted on the Lease when it is released, and known to the next one (L9).
//
// The token ([term.Token]) has the UID of the Lease and its version when it was acquired if the lock is a *resourcelock.LeaseLock:
// a copy of it is used, whose client tells what it is answered. Other locks do not show the Lease: there the token has the lock's
// description and the time of acquisition in microseconds, and whoever holds it under the same identity is taken for this process.
func Observe(lock resourcelock.Interface, o ObserveOptions) (*Observed, error) {
	if lock == nil {
		return nil, errors.New("leaderelection.Observe: the lock is nil; resourcelock.New makes one")
	}
	if lock.Identity() == "" {
		return nil, errors.New("leaderelection.Observe: the lock has no identity; set ResourceLockConfig.Identity to one that differs in each start of each process")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n := &Observed{o: o.options(), lock: lock, now: newClock(wallTime), authors: authors{identity: lock.Identity()}}
	n.o.Lease, n.o.Identity = lock.Describe(), lock.Identity()
	if l, is := lock.(*resourcelock.LeaseLock); is {
		if l.Client == nil {
			return nil, errors.New("leaderelection.Observe: the LeaseLock has no client")
		}
		n.o.Lease = l.LeaseMeta.Name
		own := *l
		n.leases = &watchedLeases{
			LeasesGetter: l.Client, stamper: stamper{identity: lock.Identity()}, now: n.now,
			authors: &n.authors, current: &n.current, rival: rival{least: n.o.LeaseDuration},
		}
		own.Client, n.lock = n.leases, &own
	}
	return n, nil
}
