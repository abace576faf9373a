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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	leadership "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

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
	hook  *hook.Hook
}

func (e *hostElector) Validate() error { return nil }

func (e *hostElector) Elector(h term.Host) (term.Elector, error) {
	e.hook = h.Hook(nil)
	return e, nil
}

func (e *hostElector) Run(ctx context.Context, lead term.Lead) error {
	e.hook.Send(&hook.LeaseCampaign{Lease: "host"})
	select {
	case <-e.leads:
	case <-ctx.Done():
		return nil
	}
	e.hook.Send(&hook.LeaseAcquired{Lease: "host"})
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
		m.AddLease(c)
		m.AddLease(nil)
		wantParts(t, m.Run(t.Context()),
			"manager.Options.LeaderElection: it is nil; use leaderelection.Options or shard.Options",
			"AddLease: its Coordinator: it is nil; use leaderelection.Options or shard.Options")
	}
}

// noElector breaks the promise of Elector.
type noElector struct{ leaderelection.Options }

func (noElector) Elector(term.Host) (term.Elector, error) { return nil, nil } //nolint:nilnil // see the test

func TestCoordinator_WithoutAnElector(t *testing.T) {
	m := newManager(newAPI(), func(o *manager.Options) { o.LeaderElection = noElector{leaseOf("operator")} })
	wantParts(t, m.Run(t.Context()), "the Coordinator manager_test.noElector returned no Elector")
}

// clientGo is client-go's elector as a Coordinator. leaderelection.Observe adds the term.
type clientGo struct {
	hostElector
	lock     *resourcelock.LeaseLock
	observed *leaderelection.Observed
}

func (e *clientGo) Elector(h term.Host) (term.Elector, error) {
	e.hook = h.Hook(nil)
	cfg, err := h.Config(nil)
	if err != nil {
		return nil, err
	}
	e.lock = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: "host"},
		Client:     coordinationclient.NewForConfigOrDie(cfg),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "host-1"},
	}
	e.observed, err = leaderelection.Observe(e.lock, e.lock.Client, leaderelection.ObserveOptions{})
	e.lock.Client = e.observed
	return e, err
}

func (e *clientGo) Run(ctx context.Context, lead term.Lead) (err error) {
	e.hook.Send(&hook.LeaseCampaign{Lease: "host"})
	led := make(chan error, 1)
	leadership.RunOrDie(ctx, leadership.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leadership.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				e.hook.Send(&hook.LeaseAcquired{Lease: "host"})
				led <- e.observed.Lead(ctx, lead)
			},
			OnStoppedLeading: func() {},
		},
	})
	return <-led
}

// TestCoordinator_OfClientGo: the work under client-go's elector has a term.
func TestCoordinator_OfClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), func(o *manager.Options) { o.LeaderElection = &clientGo{} })
		tokens := make(chan term.Token, 1)
		m.AddLeaderOnly("job", func(ctx context.Context) error {
			tokens <- term.FromContext(ctx).Token()
			<-ctx.Done()
			return nil
		})
		stop, result := start(t, m)
		if got := <-tokens; got.Holder != "host-1" || got.Lease == "" {
			t.Errorf("the token is %+v", got)
		}
		stop()
		ok(t, result())
	})
}
