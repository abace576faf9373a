// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
)

// hosted is a controller that the program runs.
type hosted struct {
	name  string
	warm  func(ctx context.Context) error        // keeps it current on every replica; nil if plain
	ready <-chan struct{}                        // closed when it is ready to lead
	lead  func(take, work context.Context) error // takes keys until take ends, works with work
	check func() error                           // fails when it is stalled; nil if plain
}

// stalledAfter is how long a controller may make no progress while it has work.
const stalledAfter = 5 * time.Minute

// constructors returns all controllers, in construction order.
func constructors() []struct {
	name string
	make func(h *host) (hosted, error)
} {
	always := make(chan struct{})
	close(always)
	plainly := func(make func(h *host) (*plain, error)) func(h *host) (hosted, error) {
		return func(h *host) (hosted, error) {
			p, err := make(h)
			if err != nil {
				return hosted{}, err
			}
			return hosted{ready: always, lead: p.run}, nil
		}
	}
	setpoint := func(make func(h *host) ours) func(h *host) (hosted, error) {
		return func(h *host) (hosted, error) {
			c := make(h)
			return hosted{warm: c.Warm, ready: c.Synced(), lead: c.Lead, check: func() error { return c.Report().CheckProgress(stalledAfter) }}, c.Validate()
		}
	}
	return []struct {
		name string
		make func(h *host) (hosted, error)
	}{
		{"robots", plainly(robots)},
		{"teams", setpoint(teams)},
		{"sweeper", plainly(sweeper)},
		{"expiry", setpoint(expiry)},
	}
}

func known() []string {
	var names []string
	for _, c := range constructors() {
		names = append(names, c.name)
	}
	return names
}

// construct creates the enabled controllers.
func (h *host) construct() ([]hosted, error) {
	var all []hosted
	for _, c := range constructors() {
		if !h.options.enabled(c.name) {
			continue
		}
		made, err := c.make(h)
		if err != nil {
			return nil, err
		}
		made.name = c.name
		all = append(all, made)
	}
	return all, nil
}

// named implements the HealthChecker of k8s.io/apiserver's healthz, without importing it.
type named struct {
	name  string
	check func() error
}

func (n named) Name() string                { return n.name }
func (n named) Check(_ *http.Request) error { return n.check() }

// warmLimit is how long an unready controller delays the campaign.
const warmLimit = 2 * time.Minute

// ready returns true when the controllers are ready or after warmLimit, and false if ctx is done
// earlier.
func ready(ctx context.Context, controllers []hosted) bool {
	limit := time.After(warmLimit)
	for _, c := range controllers {
		select {
		case <-c.ready:
		case <-limit:
			klog.FromContext(ctx).Info("Campaigning before every controller is ready", "controller", c.name)
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// lead runs the controllers for one term. It returns when all their work has ended.
func lead(take, work context.Context, controllers []hosted) error {
	term, take := errgroup.WithContext(take)
	for _, c := range controllers {
		term.Go(func() error {
			if err := c.lead(take, work); err != nil {
				return fmt.Errorf("controller %s: %w", c.name, err)
			}
			return nil
		})
	}
	return term.Wait()
}

// checksOf returns the checks of /healthz.
func checksOf(lease checker, controllers []hosted) []checker {
	checks := []checker{lease}
	for _, c := range controllers {
		if c.check != nil {
			checks = append(checks, named{c.name, c.check})
		}
	}
	return checks
}
