// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/setpoint-dev/setpoint/client"
)

// ErrLost is the cause with which a term's contexts end when the term is lost.
var ErrLost = errors.New("the term of leadership is lost")

// Lead is what a process does in a term. It should take new work until take is done, and run it on work, which outlives
// take on a stop and ends with it, cause [ErrLost], when the term is lost. The term lasts until it has returned. Both contexts
// carry it, as a [client.Term].
type Lead func(take, work context.Context) error

// Elector campaigns for one Lease. Run may be called once at a time.
type Elector struct {
	o      Options
	http   *http.Client
	leases coordinationclient.LeasesGetter
}

// New makes an elector. It starts nothing and makes no request. Its requests time out after half the RenewDeadline (at
// least 1 s), so that a single one that hangs does not cost the term.
func New(cfg *rest.Config, o Options) (*Elector, error) {
	if cfg == nil {
		return nil, errors.New("leaderelection.New: the rest.Config is nil; client.LoadConfig finds one")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	cfg.UserAgent += "/leader-election" // rest.AddUserAgent would forget what the host has set
	cfg.Timeout = max(time.Second, o.RenewDeadline/2)
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	leases, err := coordinationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	return &Elector{o: o, http: httpClient, leases: leases}, nil
}

// Run campaigns until ctx is done, and calls lead for each term. It returns nil after a stop, what lead returned in a term that
// was not lost, or an error if lead went on after a lost term for so long that somebody else may lead: then the process should
// exit. An error that lead returned because its contexts ended is none.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	defer utilnet.CloseIdleConnectionsFor(e.http.Transport)
	ctx = client.WithoutTerm(ctx) // of our own requests: they are what a term is made of
	for ctx.Err() == nil {
		lost, err := e.term(ctx, lead)
		if err != nil || !lost {
			return err
		}
	}
	return nil
}

// ended is how a term ended.
type ended struct {
	lost bool
	err  error // what lead returned
}

// term campaigns, leads once, and releases. It says whether the term was lost; lead has then returned in time if err is nil.
func (e *Elector) term(ctx context.Context, lead Lead) (lost bool, err error) {
	// hold keeps the Lease: it ends when lead has returned, not when ctx does.
	hold, letGo := context.WithCancelCause(context.WithoutCancel(ctx))
	defer letGo(nil)
	l := e.lock(func() { letGo(ErrLost) })
	defer l.close()
	defer context.AfterFunc(ctx, func() {
		if l.renewed().IsZero() {
			letGo(errStopped)
		}
	})()
	done := make(chan ended, 1)
	elector, err := leaderelection.NewLeaderElector(e.config(l, func(term context.Context) {
		end := ended{err: errExited} // unless lead returns
		defer func() {
			l.leadership().End(errReturned) // before the Lease is released
			end.lost = term.Err() != nil    // else it ends now
			done <- end
			letGo(nil)
		}()
		end.err = e.lead(ctx, term, l.leadership(), lead)
	}))
	if err != nil {
		return false, fmt.Errorf("leader election on %s: %w", e, err)
	}
	elector.Run(hold)
	switch {
	case l.renewed().IsZero(): // stopped while campaigning
		return false, nil
	case errors.Is(context.Cause(hold), errStopped): // at the moment when the Lease was acquired
		<-done
		e.release(ctx)
		return false, nil
	default:
		return e.end(ctx, l, done)
	}
}

var errStopped = errors.New("the campaign was stopped")

var errReturned = errors.New("what led under it has returned")

var errExited = errors.New("what leads has ended its goroutine with runtime.Goexit; it should return an error instead")

// lead runs one term. client-go cancels term when the Lease is lost, and when hold ends.
func (e *Elector) lead(ctx, term context.Context, t *client.Term, lead Lead) error {
	if ctx.Err() != nil {
		return nil // nothing to do but to release
	}
	if e.o.Hooks.Acquired != nil {
		e.o.Hooks.Acquired(e.o.Lease)
	}
	work, lose := context.WithCancelCause(client.WithTerm(context.WithoutCancel(ctx), t))
	defer lose(nil)
	defer context.AfterFunc(term, func() {
		t.End(ErrLost)
		lose(ErrLost)
	})()
	take, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	err := lead(take, work)
	if take.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(take))) {
		return nil // it was asked to stop, and says so
	}
	return err
}

// end joins lead and releases the Lease, or says that it is lost.
func (e *Elector) end(ctx context.Context, l *lock, done <-chan ended) (lost bool, err error) {
	end, returned := ended{}, false
	select {
	case end = <-done:
		returned = true
	default:
	}
	if returned && !end.lost {
		e.release(ctx)
		return false, end.err
	}
	if e.o.Hooks.Lost != nil {
		e.o.Hooks.Lost(e.o.Lease)
	}
	if returned {
		return true, end.err
	}
	expired := time.NewTimer(time.Until(l.renewed().Add(e.o.LeaseDuration)))
	defer expired.Stop()
	select {
	case end = <-done:
		return true, end.err
	case <-expired.C:
		return true, fmt.Errorf("the Lease %s was lost, and the work under it has not stopped before it expired: somebody else may lead now, so this process must exit", e)
	}
}

// lock makes the lock of one term. lost is called when somebody else is seen to hold a Lease that was ours, and when it could
// not be renewed in time.
func (e *Elector) lock(lost func()) *lock {
	w := &written{LeasesGetter: e.leases}
	return &lock{
		LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.o.Namespace, Name: e.o.Lease},
			Client:     w,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.o.Identity},
		},
		written: w,
		lost:    lost,
		trust:   e.o.RetryPeriod + e.o.RenewDeadline,
		fence:   e.o.fence(),
		leader: func(holder string) {
			if e.o.Hooks.Leader != nil {
				e.o.Hooks.Leader(e.o.Lease, holder)
			}
		},
	}
}

func (e *Elector) config(l *lock, lead func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock:          l,
		Name:          e.o.Lease,
		LeaseDuration: e.o.LeaseDuration,
		RenewDeadline: e.o.RenewDeadline,
		RetryPeriod:   e.o.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() {}, // also called when it never led; lead's context says it better
		},
	}
}

// String names the Lease.
func (e *Elector) String() string { return e.o.Namespace + "/" + e.o.Lease }
