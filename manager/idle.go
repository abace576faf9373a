// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// Idle waits until the controllers have nothing left to do (M7), for tests and scripts: after
//
//	err := c.Create(ctx, site)
//	err = mgr.Idle(ctx)
//
// the controllers have reconciled the site, and all that they have written because of it. It
// returns nil when there was a moment after the call at which
//
//   - everything that a controller watches or reads showed what the API server had then or, if
//     others write meanwhile, at the call or later; and its sources had handled that: no event
//     waits for a handler or for a retry,
//   - no key of a controller was ready, held by a worker, put off by MinInterval or waiting for its
//     own writes, and so no Reconcile ran.
//
// Keys that are only due later do not count: RequeueAfter, and a backoff of more than a second.
// Shorter backoffs, as after a conflict, are waited for. Paused keys do not count, nor ready ones
// of a controller that is paused as a whole. Neither do functions of AddEverywhere and
// AddLeaderOnly, and controllers of other programs, such as those that make Pods of a Deployment.
//
// If ctx ends before, the error names what is not idle: keys, objects that are not in the caches, or
// a kind that cannot be listed. A kind that is not served has nothing to wait for. A replica that
// does not lead is idle only when no key is due, because it takes none; the error says so.
//
// Each call lists the metadata of all that the controllers watch and read, at the API server, at
// least once.
func (m *Manager) Idle(ctx context.Context) error {
	before, err := m.quiet(ctx)
	for err == nil {
		if err = m.catchUp(ctx); err != nil {
			_, also := m.quiet(ctx)
			err = errors.Join(err, also)
			break
		}
		var now map[*removable]uint64
		if now, err = m.quiet(ctx); err != nil {
			break
		}
		if maps.Equal(before, now) {
			return nil // no key was taken since before it was compared with the API server
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%s went on taking keys: %w", busy(before, now), context.Cause(ctx))
		}
		before = now
	}
	return fmt.Errorf("the manager %q is not idle: %w", m.o.Name, err)
}

// quiet waits for each controller, and returns how many keys each has taken.
func (m *Manager) quiet(ctx context.Context) (map[*removable]uint64, error) {
	controllers := m.roster.current()
	counts := make([]uint64, len(controllers))
	err := each(controllers, func(i int) (err error) {
		counts[i], err = controllers[i].Quiet(ctx)
		return err
	})
	taken := map[*removable]uint64{}
	for i, c := range controllers {
		taken[c] = counts[i]
	}
	return taken, err
}

func (m *Manager) catchUp(ctx context.Context) error {
	controllers := m.roster.current()
	return each(controllers, func(i int) error { return controllers[i].CatchUp(ctx) })
}

// each calls f for all controllers at once, and leaves out the errors of those that were removed
// meanwhile.
func each(controllers []*removable, f func(i int) error) error {
	errs := make([]error, len(controllers))
	var all sync.WaitGroup
	for i, c := range controllers {
		all.Go(func() {
			if err := f(i); !run.Closed(c.removed) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// busy names the controllers that have taken keys.
func busy(before, now map[*removable]uint64) string {
	var names []string
	for r, n := range now {
		if before[r] != n {
			names = append(names, fmt.Sprintf("%q", r.Name()))
		}
	}
	slices.Sort(names)
	return "controllers " + strings.Join(names, ", ")
}
