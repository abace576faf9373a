// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/connection"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// ObserveOptions configures Observe. Set the same durations as in the host's elector. The defaults
// are as in client-go's LeaderElectionConfig and component-base's LeaderElectionConfiguration. The
// fields mean the same as in [Options]. An elector with a shorter LeaseDuration cannot acquire the
// Lease.
type ObserveOptions struct {
	// Default: 15 s.
	LeaseDuration time.Duration
	// Default: 10 s.
	RenewDeadline time.Duration
	// Default: 2 s.
	RetryPeriod time.Duration
	// Default: 20 s.
	StuckAfter time.Duration
	// Hook gets the events of the terms, but no LeaseCampaign, LeaseTakeover, LeaseUnsynced and
	// LeaseTrouble. Default: none.
	Hook *hook.Hook
}

func (o ObserveOptions) options() Options {
	return Options{
		Lease: "host", Namespace: "host", Identity: "host", StuckAfter: o.StuckAfter, Hook: o.Hook,
		LeaseDuration: cmp.Or(o.LeaseDuration, 15*time.Second),
		RenewDeadline: cmp.Or(o.RenewDeadline, 10*time.Second),
		RetryPeriod:   cmp.Or(o.RetryPeriod, 2*time.Second),
	}.withDefaults()
}

// Validate applies the defaults and returns an error that names each wrong field.
func (o ObserveOptions) Validate() error {
	err := o.options().validateTimes()
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "leaderelection.Options.", "leaderelection.ObserveOptions."))
}

// HostLock is the part of client-go's resourcelock.Interface that Observe reads. Package
// resourcelock imports the clients of all kinds, so this package does not import it.
type HostLock interface {
	// Identity returns the holderIdentity of this process.
	Identity() string
	// Describe returns NAMESPACE/NAME of the Lease.
	Describe() string
}

// Observe wraps the client of a host's LeaseLock. The host's elector then drives the terms and the
// fence of this package:
//
//	lock := &resourcelock.LeaseLock{Client: clientset.CoordinationV1(), …}
//	observed, err := leaderelection.Observe(lock, lock.Client, leaderelection.ObserveOptions{…})
//	lock.Client = observed
//	clientgo.RunOrDie(ctx, clientgo.LeaderElectionConfig{
//		Lock: lock, ReleaseOnCancel: true, …
//		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) {
//			err := observed.Lead(ctx, c.Lead)
//			…
//		}, …},
//	})
//
// resourcelock.New and resourcelock.NewFromKubeconfig return such a *resourcelock.LeaseLock.
//
// The wrapper makes no request of its own. The term counts from the start of the last Create or
// Update that succeeded, and ends as follows:
//
//   - It is lost RetryPeriod plus RenewDeadline after that start. (client-go counts from the
//     answer.) It is also lost when the Lease is deleted, created again or held by another process.
//     The work is cancelled with the cause ErrLost, and further renewals fail.
//   - A release (ReleaseOnCancel) waits until the work has returned. If the elector's request or
//     the trust ends first, the release fails, and the Lease expires.
//
// The error names an option, a lock without an identity, or a missing client.
func Observe(lock HostLock, leases coordinationclient.LeasesGetter, o ObserveOptions) (*Observed, error) {
	if lock == nil {
		return nil, errors.New("leaderelection.Observe: the lock is nil; resourcelock.New makes one")
	}
	if lock.Identity() == "" {
		return nil, errors.New("leaderelection.Observe: the lock has no identity; set ResourceLockConfig.Identity to a value that differs in each start of each process")
	}
	if leases == nil {
		return nil, errors.New("leaderelection.Observe: the client of the Leases is nil; pass the Client of the LeaseLock")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n := &Observed{
		o: o.options(), name: lock.Describe(), client: leases, now: newClock(wallTime),
		stamper: newStamper(lock.Identity(), ""), authors: authors{identity: lock.Identity()},
	}
	n.o.Lease, n.o.Identity = n.name[strings.LastIndex(n.name, "/")+1:], lock.Identity()
	n.rival.Least = n.o.LeaseDuration
	n.calls.Of = "the Lease " + n.name
	if c, ok := leases.(coordinationclient.CoordinationV1Interface); ok {
		// client-go's fakes return nil.
		if c, ok := c.RESTClient().(*rest.RESTClient); ok && c != nil && c.Client != nil {
			connection.RenewWithin(c.Client.Transport, n.o.RenewDeadline)
		}
	}
	return n, nil
}

// Observed is the client of a host's LeaseLock, and makes terms. Only the elector's lock uses the
// client. The other methods are safe for concurrent use.
type Observed struct {
	o       Options
	name    string // the Lease, as the lock describes it
	client  coordinationclient.LeasesGetter
	now     clock
	stamper stamper
	current atomic.Pointer[tenure]
	calls   run.Calls

	// Only the elector's goroutine uses these.
	authors authors
	rival   lease.Rival           // with our identity, which client-go would take for itself
	last    *coordinationv1.Lease // never changed
	left    *fence.Handover       // from the last holder, or nil
	ours    bool                  // as last read or written
	read    bool                  // since the last write
	leader  string
}

var _ coordinationclient.LeasesGetter = (*Observed)(nil)

// Name returns the name of the Check, such as "leader-election-operator".
func (o *Observed) Name() string { return "leader-election-" + o.o.Lease }

// Check is like [Elector.Check].
func (o *Observed) Check(*http.Request) error {
	return cmp.Or(o.current.Load().check(), o.calls.Stuck(o.o.StuckAfter))
}

// Lead calls lead in the current term: see [term.Lead]. Call it from OnStartedLeading with its
// context. It returns lead's result, nil after a stop, or an [ErrLost] after a lost term. RunOrDie
// may return before Lead, after a loss or without a release: a host that exits then should wait for
// Lead.
func (o *Observed) Lead(ctx context.Context, lead term.Lead) error {
	t := o.current.Load()
	if t != nil {
		t.ranBy(ctx.Done())
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case t == nil:
		return fmt.Errorf("%w, and set the lock's Client to this %T", errNoLease, o)
	}
	err := t.lead(ctx, lead)
	if err == nil && t.expire() {
		return fmt.Errorf("the Lease %s: %w", o.name, ErrLost)
	}
	return err
}

// Leases returns the client of the Lease, for the elector's lock.
func (o *Observed) Leases(namespace string) coordinationclient.LeaseInterface {
	return observedLease{o.client.Leases(namespace), o}
}
