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
	"github.com/setpoint-dev/setpoint/internal/testkit"
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
		var log testkit.Buffer
		m, probe := healthy(t, newAPI(), func(o *manager.Options) {
			o.LeaderElection, o.Logger = &hostElector{leads: leads}, slog.New(slog.NewTextHandler(&log, nil))
		})
		m.Add(newFake("website", d))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.Equal(t, leading(d), false, "the controller leads, and the host's elector does not")
		status, _ := get(t, probe, "http://x/readyz")
		testkit.NotEqual(t, status, http.StatusOK, "it is ready before its elector has seen the Lease")
		close(leads)
		testkit.Pass(time.Minute)
		testkit.Equal(t, leading(d), true, d.events)
		testkit.Equal(t, m.Group(), nil)
		testkit.Equal(t, m.Slots(), nil)
		wantLine(t, probe, "[+]leader-election-host ok")
		wantParts(t, errors.New(log.String()), "msg=campaigning lease=kube-system/host identity=host-1", "msg=leading lease=kube-system/host")
		stop()
		ok(t, result())
	})
}

// silentElector reports nothing to its host, but has two electors in itself.
type silentElector struct {
	hostElector
	own, hooks [2]*hook.Hook
}

func (e *silentElector) Elector(h term.Host) (term.Elector, error) {
	for i, own := range e.own {
		if own != nil {
			e.hooks[i] = h.Hook(own)
		}
	}
	return e, nil
}

func (e *silentElector) Run(ctx context.Context, lead term.Lead) error {
	return lead(ctx, context.WithoutCancel(ctx))
}

// TestCoordinator_ThatReportsNothing: the manager's own event about its Lease has no need of it.
func TestCoordinator_ThatReportsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsynced := 0
		m := newManager(newAPI(), func(o *manager.Options) {
			o.LeaderElection, o.Hook = &silentElector{}, hook.On(func(*hook.LeaseUnsynced) { unsynced++ })
		})
		c := newFake("website", &diary{})
		c.synced = make(chan struct{})
		m.Add(c)
		stop, result := start(t, m)
		testkit.Pass(3 * time.Minute)
		stop()
		ok(t, result())
		testkit.Equal(t, unsynced, 1, "LeaseUnsynced was sent")
	})
}

// TestCoordinator_OfTwoElectors: each reports to the Hook of its own options.
func TestCoordinator_OfTwoElectors(t *testing.T) {
	var n [2]int
	e := &silentElector{}
	for i := range e.own {
		e.own[i] = hook.On(func(*hook.LeaseHolder) { n[i]++ })
	}
	newManager(newAPI(), func(o *manager.Options) { o.LeaderElection = e })
	e.hooks[1].Send(&hook.LeaseHolder{})
	testkit.Equal(t, n, [2]int{0, 1}, "an event of the second one was sent")
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
