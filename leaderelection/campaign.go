// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

func (c *candidate) campaign(ctx context.Context) *holding {
	for ctx.Err() == nil {
		h, pause := c.try(ctx)
		if h != nil {
			return h
		}
		if left := c.rival.Left(c.now().mono); left > 0 {
			pause = min(pause, left+c.spread())
		}
		_ = run.Sleep(ctx, pause)
	}
	return nil
}

// try takes the Lease if it is free, else follows it. It returns the pause before the next try.
func (c *candidate) try(ctx context.Context) (*holding, time.Duration) {
	l, err := c.read(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.failed("the lease cannot be read", err)
		}
		return nil, c.pause(err)
	}
	c.see(l)
	var retry time.Duration
	if c.free() {
		var h *holding
		if h, retry = c.take(ctx, l); h != nil {
			return h, 0
		}
	} else {
		c.succeeded()
	}
	if l == nil || time.Now().Before(c.watchAgain) { // a missing Lease cannot be watched
		return nil, max(retry, c.pause(nil))
	}
	return c.follow(ctx, l, retry)
}

// follow returns when the Lease is ours or must be read again. A retry other than 0 means that a
// free Lease could not be taken: follow then waits that long for a change.
func (c *candidate) follow(ctx context.Context, l *coordinationv1.Lease, retry time.Duration) (*holding, time.Duration) {
	began, wait := time.Now(), c.wait(retry)
	events, stop, err := c.watch(ctx, l.ResourceVersion, wait)
	if err != nil {
		if ctx.Err() != nil || time.Since(began) >= wait {
			return nil, 0
		}
		return nil, c.watchEnded(err, began)
	}
	defer stop()
	due := time.NewTimer(c.wait(retry))
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, 0
		case event := <-events:
			found, err := c.leaseOf(event)
			if err != nil || event.Type == "" {
				return nil, c.watchEnded(err, began)
			}
			if event.Type == watch.Bookmark || !c.see(found) {
				continue
			}
			l, retry = found, 0
		case <-due.C:
			if retry != 0 {
				return nil, 0
			}
		}
		if c.free() {
			var h *holding
			if h, retry = c.take(ctx, l); h != nil {
				return h, 0
			}
		}
		due.Reset(c.wait(retry))
	}
}

func (c *candidate) wait(retry time.Duration) time.Duration {
	if retry != 0 {
		return retry
	}
	left := c.rival.Left(c.now().mono)
	if left > 0 {
		left += c.spread()
	}
	return left
}

func (c *candidate) watchEnded(err error, began time.Time) time.Duration {
	lasted := time.Since(began) > c.o.RetryPeriod+c.timeout()
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) {
		c.watchAgain = time.Now().Add(refused * c.o.RetryPeriod)
	}
	if err != nil && !lasted && !apierrors.IsResourceExpired(err) && !c.polls {
		c.log.Warn("the lease cannot be watched, so it is polled: a takeover takes longer", "every", c.o.RetryPeriod.String(), "err", err)
	}
	c.polls = !lasted && (c.polls || err != nil)
	if err == nil && lasted {
		return 0 // the usual end of a watch
	}
	return c.pause(err)
}

// refused is the number of RetryPeriods of polling after a refused watch.
const refused = 30

func (c *candidate) free() bool { return c.rival.Left(c.now().mono) <= 0 }

// take acquires the Lease, if its record was the last seen, or returns the pause before the next
// try.
//
// If the Lease is missing and another process may have held it, take creates it without a term. A
// later call acquires this record when it has expired: no process trusts a term before it then.
func (c *candidate) take(ctx context.Context, l *coordinationv1.Lease) (*holding, time.Duration) {
	// A stop must not hide that the Lease became ours: nothing would release it.
	ctx, cancel := run.WithGrace(ctx, context.WithoutCancel(ctx), answerLimit)
	defer cancel()
	h := &holding{won: c.now.moment()}
	at := h.won.time.Truncate(time.Microsecond)
	write, lasts, reserves := c.update, c.o.LeaseDuration, false
	if l == nil {
		write = c.create
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.o.Namespace, Name: c.o.Lease}}
		if reserves = c.rival.Known; reserves {
			c.reserved, lasts = at, c.rival.Lasts()
		}
	}
	c.authors.wrote(at)
	var err error
	l = unstamped(lease.Acquired(l, c.o.Identity, lasts, at))
	if h.lease, err = write(ctx, c.o.described(l, term.Token{})); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // another was faster
			c.authors.refused(at)
		} else {
			c.failed("the lease cannot be acquired", err)
		}
		return nil, c.pause(err)
	}
	c.authors.answered(at)
	c.succeeded()
	if reserves {
		c.log.Info("the lease was deleted, and its holder may still trust it; created it, and waiting until it has lasted", "for", lasts.String())
		return nil, c.pause(nil)
	}
	c.leader = c.o.Identity
	c.rival = lease.Rival{Least: c.o.LeaseDuration}
	if c.from != "" {
		c.o.Hook.Send(&hook.LeaseTakeover{Lease: c.o.Lease, From: c.from, Gap: c.now().mono - c.heard})
	}
	c.from = ""
	return h, 0
}

// answerLimit is how long a stopped campaign waits for the answer to an acquisition.
const answerLimit = time.Second

// spread is a random delay, so that replicas do not all write when the Lease expires.
func (c *candidate) spread() time.Duration { return rand.N(c.o.RetryPeriod/20 + 1) }

// pause is at least the delay that the API server asks for, up to LeaseDuration.
func (c *candidate) pause(err error) time.Duration {
	pause := c.o.RetryPeriod + rand.N(c.o.RetryPeriod/5+1)
	return max(pause, min(delayOf(err), c.o.LeaseDuration))
}
