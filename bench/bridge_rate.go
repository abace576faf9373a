// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// rate counts the Reconciles of one worker whose keys wait for watches that are late: keys that
// create, update and delete. A Reconcile on an older cache does nothing useful; the API server
// refuses its write.
func (p *bridge) rate(a *arena) func(context.Context) ([]bridgeRow, error) {
	const lag = time.Second
	title := func(what string) string {
		return fmt.Sprintf("%s, 1 worker, %d keys, watches %s late", what, p.keys, lag)
	}
	return func(ctx context.Context) ([]bridgeRow, error) {
		fresh := bridgeRow{title: title("Reconciles on a current cache"), format: "%.1f/s", compared: true}
		stale := bridgeRow{title: title("Reconciles on an older cache"), format: "%.1f/s"}
		for _, c := range bridgeContestants {
			const cycles = 1_000_000 // more than the limit allows
			st := newStorm(p.keys, cycles, 0, 1)
			took, _, err := st.through(ctx, a.cfg, weather{lag: lag, cycles: cycles, limit: p.limit}, stormControllerRuntime(c.name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			runs, old := float64(st.runs.Load()), float64(st.stale.Load())
			fresh.add("", (runs-old)/took.Seconds())
			stale.add(fmt.Sprintf("%d writes refused", st.refused.Load()), old/took.Seconds())
		}
		return []bridgeRow{fresh, stale}, nil
	}
}
