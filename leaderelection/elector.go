// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/hook"
)

// ErrLost is the cause with which a term's contexts end when the term is lost.
var ErrLost = errors.New("the term of leadership is lost")

// Lead is what a process does in a term. It should take new work until take is done, and run it on work, which outlives
// take on a stop and ends with it, cause [ErrLost], when the term is lost. The term lasts until it has returned.
type Lead func(take, work context.Context) error

// Elector campaigns for one Lease. Run may be called once at a time.
type Elector struct {
	o      Options
	leases coordinationclient.LeasesGetter
}

// New makes an elector. It starts nothing and makes no request. Its requests time out after half the RenewDeadline (at
// least 1 s), so that a single one that hangs does not cost the term.
func New(cfg *rest.Config, o Options) (*Elector, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.Hooks == nil {
		o.Hooks = &hook.LeaderElection{}
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	cfg.Timeout = max(time.Second, o.RenewDeadline/2)
	leases, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	return &Elector{o: o, leases: leases}, nil
}

// Run campaigns until ctx is done, and calls lead for each term. It returns nil after a stop, the error that lead returned, or
// an error if lead went on after a lost term for so long that somebody else may lead: then the process should exit.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	for ctx.Err() == nil {
		if err := e.term(ctx, lead); !errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

// term campaigns, leads once, and releases. It returns ErrLost if the term was lost and lead has returned in time.
func (e *Elector) term(ctx context.Context, lead Lead) error {
	// hold keeps the Lease: it ends when lead has returned, not when ctx does.
	hold, letGo := context.WithCancel(context.WithoutCancel(ctx))
	defer letGo()
	var leading atomic.Bool
	stopCampaign := context.AfterFunc(ctx, func() {
		if !leading.Load() {
			letGo()
		}
	})
	defer stopCampaign()

	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(e.config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(term context.Context) {
			leading.Store(true)
			done <- e.lead(ctx, term, lead)
			letGo()
		},
		OnStoppedLeading: func() {},
		OnNewLeader:      e.observed,
	}))
	if err != nil {
		return fmt.Errorf("leader election on %s: %w", e, err)
	}
	elector.Run(hold)
	if !elector.IsLeader() && !leading.Load() && ctx.Err() != nil {
		return nil // stopped while campaigning
	}
	return e.end(ctx, hold, done)
}

// lead runs one term. client-go cancels term when the Lease is lost, and when hold ends.
func (e *Elector) lead(ctx, term context.Context, lead Lead) error {
	if e.o.Hooks.Acquired != nil {
		e.o.Hooks.Acquired(e.o.Lease)
	}
	work, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	defer context.AfterFunc(term, func() { lose(ErrLost) })()
	take, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	err := lead(take, work)
	if lost := context.Cause(work); errors.Is(lost, ErrLost) && (err == nil || errors.Is(err, context.Canceled)) {
		return lost
	}
	return err
}

// end joins lead and releases the Lease, or says that it is lost.
func (e *Elector) end(ctx, hold context.Context, done <-chan error) error {
	if hold.Err() != nil { // lead has returned: nothing else ends hold once it leads
		err := <-done
		e.release(ctx)
		return err
	}
	if e.o.Hooks.Lost != nil {
		e.o.Hooks.Lost(e.o.Lease)
	}
	margin := e.o.LeaseDuration - e.o.RenewDeadline
	select {
	case err := <-done:
		return err
	case <-time.After(margin):
		return fmt.Errorf("the Lease %s was lost, and the work under it has not stopped within %s: somebody else may lead now, so this process must exit", e, margin)
	}
}

func (e *Elector) config(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.o.Namespace, Name: e.o.Lease},
			Client:     e.leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.o.Identity},
		},
		Name:          e.o.Lease,
		LeaseDuration: e.o.LeaseDuration,
		RenewDeadline: e.o.RenewDeadline,
		RetryPeriod:   e.o.RetryPeriod,
		Callbacks:     callbacks,
	}
}

func (e *Elector) observed(identity string) {
	if identity != e.o.Identity && identity != "" && e.o.Hooks.Leader != nil {
		e.o.Hooks.Leader(e.o.Lease, identity)
	}
}

// String names the Lease.
func (e *Elector) String() string { return e.o.Namespace + "/" + e.o.Lease }
