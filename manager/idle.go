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

	"github.com/setpoint-dev/setpoint/controller"
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
// If keys fail then, the error is a [FailingError]: their last Reconcile returned an error, and
// they wait for a longer backoff, or are not retried. A test that expects failures looks at its
// keys:
//
//	failing, ok := errors.AsType[*manager.FailingError](err)
//
// If ctx ends first, the error names what is not idle: keys, objects that the caches lack, or a
// kind that cannot be listed. A standby is idle only when no key is due. After Run, and if no
// controller was ever added, Idle returns an error.
//
// Each call lists the metadata of every kind that the controllers watch or read at least once.
func (m *Manager) Idle(ctx context.Context) error {
	if controllers, _ := m.registry.hadAny(); !controllers {
		return fmt.Errorf("the manager %q has no controllers; pass them to Add", m.o.Name)
	}
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
		failing := m.failing() // no key is taken until then, or it is read again
		var now map[*removable]uint64
		if now, err = m.quiet(ctx); err != nil {
			break
		}
		if maps.Equal(before, now) {
			// No key was taken since before the comparison with the API server.
			if len(failing) > 0 {
				return &FailingError{Manager: m.o.Name, Keys: failing}
			}
			return nil
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%s went on taking keys: %w", busy(before, now), context.Cause(ctx))
		}
		before = now
	}
	return fmt.Errorf("the manager %q is not idle: %w", m.o.Name, err)
}

// FailingError is the error of [Manager.Idle] if nothing is left to do but to retry what fails.
type FailingError struct {
	Manager string
	Keys    []FailingKey // sorted by controller and key
}

// FailingKey is a key whose last Reconcile failed.
type FailingKey struct {
	Controller string
	controller.FailedKey
}

const mostNamed = 10 // keys in the text of an error

// Error names the first keys.
func (e *FailingError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "the manager %q is idle, but keys fail:", e.Manager)
	for i, k := range e.Keys[:min(len(e.Keys), mostNamed)] {
		if i > 0 {
			text.WriteByte(';')
		}
		fmt.Fprintf(&text, " controller %q, %s: %s", k.Controller, k.Key, k.Err)
	}
	if more := len(e.Keys) - mostNamed; more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

func (m *Manager) failing() (failing []FailingKey) {
	for _, c := range m.registry.current() {
		for _, key := range c.Failing() {
			failing = append(failing, FailingKey{c.Name(), key})
		}
	}
	slices.SortStableFunc(failing, func(a, b FailingKey) int { return strings.Compare(a.Controller, b.Controller) })
	return failing
}

// quiet returns how many keys each controller has taken.
func (m *Manager) quiet(ctx context.Context) (map[*removable]uint64, error) {
	controllers := m.registry.current()
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
	controllers := m.registry.current()
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
