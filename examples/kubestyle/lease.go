// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// lease is the program's Lease. client-go runs the election, Setpoint the terms.
type lease struct {
	options  *options
	elector  clientgo.LeaderElectionConfig
	observed *leaderelection.Observed // nil without --leader-elect
}

// newLease configures the election from the flags, which are component-base's
// LeaderElectionConfiguration.
func (h *host) newLease() (*lease, error) {
	o := h.options
	if !o.leases.LeaderElect {
		return &lease{options: o}, nil
	}
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	made, err := resourcelock.NewFromKubeconfig(o.leases.ResourceLock, o.leases.ResourceNamespace, o.leases.ResourceName,
		resourcelock.ResourceLockConfig{Identity: o.identity}, rest.AddUserAgent(cfg, "leader-election"), o.leases.RenewDeadline.Duration)
	if err != nil {
		return nil, fmt.Errorf("--leader-elect-resource-lock: %w", err)
	}
	lock, ok := made.(*resourcelock.LeaseLock)
	if !ok {
		return nil, fmt.Errorf("--leader-elect-resource-lock: %s is a %T, not a lock of Leases; use leases", o.leases.ResourceLock, made)
	}
	observing := observeOptions(o.leases)
	observing.Hook = h.metrics
	observed, err := leaderelection.Observe(lock, lock.Client, observing)
	if err != nil {
		return nil, err
	}
	l := &lease{options: o, observed: observed, elector: electorConfig(o.leases)}
	lock.Client, l.elector.Lock = observed, lock
	return l, nil
}

// observeOptions configures Setpoint as electorConfig configures client-go.
func observeOptions(le config.LeaderElectionConfiguration) leaderelection.ObserveOptions {
	return leaderelection.ObserveOptions{
		LeaseDuration: le.LeaseDuration.Duration, RenewDeadline: le.RenewDeadline.Duration, RetryPeriod: le.RetryPeriod.Duration,
	}
}

func electorConfig(le config.LeaderElectionConfiguration) clientgo.LeaderElectionConfig {
	return clientgo.LeaderElectionConfig{
		Name: le.ResourceName, ReleaseOnCancel: true,
		LeaseDuration: le.LeaseDuration.Duration, RenewDeadline: le.RenewDeadline.Duration, RetryPeriod: le.RetryPeriod.Duration,
	}
}

// Name returns the name of the health check.
func (l *lease) Name() string { return "leader-election" }

// Check fails while work continues under a lost term.
func (l *lease) Check(r *http.Request) error {
	if l.observed == nil {
		return nil
	}
	return l.observed.Check(r)
}

// lead calls lead in a term. When ctx ends, it renews the Lease until lead has returned, and then
// releases it.
func (l *lease) lead(ctx context.Context, lead term.Lead) error {
	within := func(take, work context.Context) error {
		take, end := context.WithCancel(take)
		defer end()
		defer context.AfterFunc(ctx, end)()
		work, cut := withGrace(take, work, l.options.grace)
		defer cut()
		return lead(take, work)
	}
	log := klog.FromContext(ctx)
	if l.observed == nil {
		log.Info("Leading without a Lease: another process may lead, too")
		return within(ctx, context.WithoutCancel(ctx))
	}
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var leading atomic.Bool
	defer context.AfterFunc(ctx, func() {
		if !leading.Load() {
			release() // no work to wait for
		}
	})()
	led := make(chan error, 1)
	l.elector.Callbacks = clientgo.LeaderCallbacks{
		OnStartedLeading: func(term context.Context) {
			leading.Store(true)
			log.Info("Leading", "lease", l.observed)
			err := l.observed.Lead(term, within)
			log.Info("All work has ended", "lease", l.observed)
			led <- err
			release()
		},
		OnStoppedLeading: func() {},
		OnNewLeader:      func(identity string) { log.Info("Observed a leader", "lease", l.observed, "leader", identity) },
	}
	elector, err := clientgo.NewLeaderElector(l.elector)
	if err != nil {
		return fmt.Errorf("--leader-elect: %w", err)
	}
	elector.Run(electing)
	if !leading.Load() {
		return nil // stopped before a term
	}
	return <-led
}

// withGrace returns a context that ends with work, or when the grace time since the end of take is
// over.
func withGrace(take, work context.Context, grace time.Duration) (context.Context, func()) {
	work, cancel := context.WithCancelCause(work)
	over := fmt.Errorf("the grace time of %s is over: %w", grace, context.Canceled)
	stop := context.AfterFunc(take, func() { time.AfterFunc(grace, func() { cancel(over) }) })
	return work, func() {
		stop()
		cancel(nil)
	}
}
