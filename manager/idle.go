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

// Idle waits until the controllers have nothing left to do. It is for tests and scripts:
//
//	err := c.Create(ctx, site)
//	err = mgr.Idle(ctx) // the controllers have reconciled the site and all resulting writes
//
// Idle returns nil when there was a moment after the call at which
//
//   - the caches of the controllers contained what the API server had at that moment, or, if others
//     keep writing, at an earlier moment since the call,
//   - their sources had handled it: no event waited for a handler or a retry,
//   - no key was ready, held by a worker, put off by MinInterval or waiting for its own writes.
//
// Idle does not wait for
//
//   - keys that are due later: a RequeueAfter, or a backoff of more than a second,
//   - paused keys, and ready keys of a paused controller,
//   - functions of AddEverywhere and AddLeaderOnly,
//   - kinds that are not served,
//   - controllers of other programs, such as those that make Pods for a Deployment.
//
// If ctx ends first, the error names what is not idle: keys, objects that the caches lack, or a
// kind that cannot be listed. A standby is idle only when no key is due. After Run, Idle returns an
// error.
//
// Each call lists the metadata of every kind that the controllers watch or read at least once.
func (m *Manager) Idle(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-m.ended:
			cancel(errors.New("Run has returned; see its error"))
		case <-ctx.Done():
		}
	})
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
			return nil // no key was taken since before the comparison with the API server
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%s went on taking keys: %w", busy(before, now), context.Cause(ctx))
		}
		before = now
	}
	return fmt.Errorf("the manager %q is not idle: %w", m.o.Name, err)
}

// quiet returns how many keys each controller has taken.
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

// each ignores errors of removed controllers.
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
