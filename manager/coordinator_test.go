// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// hostElector is the elector of a host program, which knows when this process leads. It is its own
// Coordinator, and reports its terms.
type hostElector struct {
	leads <-chan struct{}
	hooks *hook.LeaderElection
}

func (e *hostElector) Validate() error { return nil }

func (e *hostElector) Elector(h term.Host) (term.Elector, error) {
	e.hooks = h.Hooks(hook.Hooks{}).LeaderElection
	return e, nil
}

func (e *hostElector) Run(ctx context.Context, lead term.Lead) error {
	e.hooks.Campaigning("host")
	select {
	case <-e.leads:
	case <-ctx.Done():
		return nil
	}
	e.hooks.Acquired("host")
	return lead(ctx, context.WithoutCancel(ctx))
}

func (e *hostElector) String() string            { return "kube-system/host" }
func (e *hostElector) Identity() string          { return "host-1" }
func (e *hostElector) Name() string              { return "leader-election-host" }
func (e *hostElector) Check(*http.Request) error { return nil }

func leading(d *diary) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.events, "lead website starts")
}

// TestCoordinator_OfAHost: a program's own elector decides when controllers lead. It has the
// manager's log and checks.
func TestCoordinator_OfAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leads, d := make(chan struct{}), &diary{}
		var log buffer
		m, probe := healthy(t, newAPI(), func(o *manager.Options) {
			o.LeaderElection, o.Logger = &hostElector{leads: leads}, slog.New(slog.NewTextHandler(&log, nil))
		})
		m.Add(newFake("website", d))
		stop, result := start(t, m)
		pass(time.Minute)
		if leading(d) {
			t.Error("the controller leads, and the host's elector does not")
		}
		if status, _ := get(t, probe, "http://x/readyz"); status == http.StatusOK {
			t.Error("it is ready before its elector has seen the Lease")
		}
		close(leads)
		pass(time.Minute)
		if !leading(d) || m.Group() != nil || m.Slots() != nil {
			t.Errorf("the controller does not lead: %v", d.events)
		}
		wantLine(t, probe, "[+]leader-election-host ok")
		wantParts(t, errors.New(log.String()), "msg=campaigning lease=kube-system/host identity=host-1", "msg=leading lease=kube-system/host")
		stop()
		ok(t, result())
	})
}

// TestCoordinator_Nil: a nil pointer is a mistake, and not "no election".
func TestCoordinator_Nil(t *testing.T) {
	var elect *leaderelection.Options
	var group *shard.Options
	for _, c := range []manager.Coordinator{elect, group} {
		m := newManager(newAPI(), func(o *manager.Options) { o.LeaderElection = c })
		m.Lease(c)
		m.Lease(nil)
		wantParts(t, m.Run(t.Context()),
			"manager.Options.LeaderElection: it is nil; use leaderelection.Options or shard.Options",
			"Lease: its Coordinator: it is nil; use leaderelection.Options or shard.Options")
	}
}

// noElector breaks the promise of Elector.
type noElector struct{ leaderelection.Options }

func (noElector) Elector(term.Host) (term.Elector, error) { return nil, nil } //nolint:nilnil // see the test

func TestCoordinator_WithoutAnElector(t *testing.T) {
	m := newManager(newAPI(), func(o *manager.Options) { o.LeaderElection = noElector{leaseOf("operator")} })
	wantParts(t, m.Run(t.Context()), "the Coordinator manager_test.noElector returned no Elector")
}
