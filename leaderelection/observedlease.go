// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// observedLease serves the LeaseLock, which calls Get, Create and Update, one after another, for
// this Lease only.
type observedLease struct {
	coordinationclient.LeaseInterface

	o *Observed
}

// Get ends the term if it finds that the Lease is lost.
func (l observedLease) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := l.o.request(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.LeaseInterface.Get(ctx, name, o)
	})
	switch {
	case err == nil:
		l.o.keep(lease)
		if !l.o.authors.mine(lease) {
			l.o.left, _ = l.o.stamper.inheritance(lease) // unreadable: it has an unknown write
		}
		l.o.saw(lease)
	case apierrors.IsNotFound(err):
		l.o.saw(nil)
	}
	return lease, err
}

// Create implements coordinationclient.LeaseInterface.
func (l observedLease) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	sent := lease.DeepCopy()
	return l.o.hold(ctx, lease, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.o.request(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
			return l.LeaseInterface.Create(ctx, sent, o)
		})
	})
}

// Update fails if it would renew a lost term, release the Lease of another process, or release a
// Lease under which work goes on. Like Create, it fails for a duration below
// ObserveOptions.LeaseDuration. A release adds the last writes, and an acquisition removes them.
func (l observedLease) Update(ctx context.Context, asked *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	update := func(ctx context.Context) (*coordinationv1.Lease, error) {
		sent := l.o.stamped(asked.DeepCopy()) // after a release's work has returned
		return l.o.request(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
			written, err := l.LeaseInterface.Update(ctx, sent, o)
			if _, stamped := sent.Annotations[WrittenAnnotation]; stamped && notStored(err) {
				delete(sent.Annotations, WrittenAnnotation)
				written, err = l.LeaseInterface.Update(ctx, sent, o)
			}
			return written, err
		})
	}
	if lease.Holder(asked) == "" {
		return l.o.release(ctx, update)
	}
	return l.o.hold(ctx, asked, update)
}

// request makes a request of the host's elector, which waits at most for RenewDeadline, even if the
// request ignores its context. client-go sets no limit for an acquisition.
func (o *Observed) request(ctx context.Context, f func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	return run.Call(term.Without(ctx), &o.calls, o.o.RenewDeadline, f)
}

// keep records a copy of an answer, because the LeaseLock changes it.
func (o *Observed) keep(l *coordinationv1.Lease) {
	o.last = l.DeepCopy()
	o.rival.See(o.last, o.authors.mine(l), o.now().mono)
}

func (o *Observed) saw(l *coordinationv1.Lease) {
	o.read = true
	t := o.current.Load()
	o.ours = o.authors.mine(l) && (t == nil || l.UID == t.term.Token().Lease)
	if t != nil && !o.ours {
		t.taken()
	}
	if l == nil || lease.Holder(l) == o.leader {
		return
	}
	o.leader = lease.Holder(l)
	if o.leader != "" && o.leader != o.o.Identity {
		o.o.Hook.Send(&hook.LeaseHolder{Lease: o.o.Lease, Identity: o.leader})
	}
}

func (o *Observed) hold(ctx context.Context, l *coordinationv1.Lease, write func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	if d := lease.Duration(l); d < o.o.LeaseDuration.Truncate(time.Second) {
		return nil, fmt.Errorf("the Lease %s: the elector's LeaseDuration (%s) is shorter than ObserveOptions.LeaseDuration (%s), "+
			"so a term would be trusted for too long; set both to the same duration", o.name, d, o.o.LeaseDuration)
	}
	slow := o.read
	o.read = false
	sent := o.now.moment()
	t, err := o.mayHold()
	if err != nil {
		return nil, fmt.Errorf("the Lease %s: %w", o.name, err)
	}
	at := renewedAt(l)
	o.authors.wrote(at)
	written, err := write(ctx)
	if t != nil && (err == nil || ctx.Err() == nil) {
		o.o.Hook.Send(&hook.LeaseRenewal{Lease: o.o.Lease, Took: time.Since(sent.time), Slowpath: slow, Err: err})
	}
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			o.authors.refused(at)
		}
		return nil, err
	}
	o.keep(written)
	o.authors.answered(at)
	o.ours, o.leader = true, o.o.Identity
	switch {
	case t == nil:
		o.begin(sent)
	case !t.renew(sent):
		return nil, fmt.Errorf("the Lease %s was renewed too late: %w", o.name, ErrLost)
	}
	return written, nil
}

func renewedAt(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Truncate(time.Microsecond)
}

// mayHold returns the term that a write renews, or nil if it begins one.
func (o *Observed) mayHold() (*tenure, error) {
	if t := o.current.Load(); t != nil {
		if renews, err := t.renews(); renews || err != nil {
			return t, err
		}
	}
	if o.last == nil || lease.Holder(o.last) != o.o.Identity || o.authors.mine(o.last) || o.rival.Left(o.now().mono) <= 0 {
		return nil, nil //nolint:nilnil // it begins one
	}
	return nil, fmt.Errorf("another process holds it under the identity of this process, %q, or an earlier state of it was restored; "+
		"waiting until it expires", o.o.Identity)
}

func (o *Observed) begin(sent moment) {
	token := term.Token{Lease: o.last.UID, ResourceVersion: o.last.ResourceVersion, Holder: o.o.Identity}
	left := o.left
	o.left = nil
	if before := o.current.Load(); before != nil {
		before.finish()
	}
	t := &tenure{o: &o.o, name: o.name, now: o.now, lost: func() { o.o.Hook.Send(&hook.LeaseLost{Lease: o.o.Lease}) }}
	o.current.Store(t.begin(token, sent, left))
	o.o.Hook.Send(&hook.LeaseAcquired{Lease: o.o.Lease})
}

func (o *Observed) release(ctx context.Context, write func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	if !o.ours {
		return nil, fmt.Errorf("this process does not hold the Lease %s, so it does not release it", o.name)
	}
	var written *coordinationv1.Lease
	var err error
	if t := o.current.Load(); t != nil {
		err = t.close(ctx)
	}
	if err == nil {
		written, err = write(ctx)
	}
	if err == nil {
		o.keep(written)
		o.ours = false
	}
	if !apierrors.IsConflict(err) { // the elector retries a conflict
		o.o.Hook.Send(&hook.LeaseReleased{Lease: o.o.Lease, Err: err})
	}
	return written, err
}

func (o *Observed) stamped(l *coordinationv1.Lease) *coordinationv1.Lease {
	t := o.current.Load()
	if lease.Holder(l) != "" || t == nil || l.Spec.RenewTime == nil {
		return unstamped(l)
	}
	return o.stamper.stamped(l, (*fence.Term)(t.term).Written(), renewedAt(l))
}
