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
// Idle returns nil when there was a moment after the call
//
//   - at which no key was ready, held by a worker, put off by MinInterval or waiting for its own
//     writes,
//   - since which the caches of the controllers have come to contain all that the API server had,
//     and their sources have handled it: no event of it waits for a handler or a retry,
//   - since which no worker has taken a key until then.
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
// Each call lists the metadata of every kind that the controllers watch or read at least twice.
func (m *Manager) Idle(ctx context.Context) error {
	if controllers, _ := m.registry.hadAny(); !controllers {
		return fmt.Errorf("the manager %q has no controllers; pass them to Add", m.o.Name)
	}
	ctx, stop := run.Until(ctx, m.ended, errors.New("Run has returned; see its error"))
	defer stop()
	before, err := m.waitIdle(ctx)
	for err == nil {
		var now map[*removable]controller.Idle
		if now, err = m.waitIdle(ctx); err != nil {
			break
		}
		if maps.EqualFunc(before, now, sameTaken) {
			// No key was taken since before the comparison with the API server, so before is exact.
			if failing := failingOf(before); len(failing) > 0 {
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

func failingOf(idle map[*removable]controller.Idle) (failing []FailingKey) {
	for c, i := range idle {
		for _, key := range i.Failing {
			failing = append(failing, FailingKey{c.Name(), key})
		}
	}
	slices.SortStableFunc(failing, func(a, b FailingKey) int { return strings.Compare(a.Controller, b.Controller) })
	return failing
}

func (m *Manager) waitIdle(ctx context.Context) (map[*removable]controller.Idle, error) {
	controllers := m.registry.current()
	results := make([]controller.Idle, len(controllers))
	err := each(controllers, func(i int) (err error) {
		results[i], err = controllers[i].WaitIdle(ctx)
		return err
	})
	idle := map[*removable]controller.Idle{}
	for i, c := range controllers {
		idle[c] = results[i]
	}
	return idle, err
}

func sameTaken(a, b controller.Idle) bool { return a.Taken == b.Taken }

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

func busy(before, now map[*removable]controller.Idle) string {
	var names []string
	for r, idle := range now {
		if !sameTaken(before[r], idle) {
			names = append(names, fmt.Sprintf("%q", r.Name()))
		}
	}
	slices.Sort(names)
	return "controllers " + strings.Join(names, ", ")
}
