// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/setpoint-dev/setpoint/term"
)

// watchedLeases is the client of a LeaseLock. It keeps the Lease, which the LeaseLock does not
// show. Only the elector's goroutine uses it.
type watchedLeases struct {
	coordinationclient.LeasesGetter

	stamper stamper
	now     clock
	authors *authors
	current *atomic.Pointer[tenure]

	last *coordinationv1.Lease // the last answer; never changed
	left *term.Handover        // from the last holder, or nil
	// rival times a holder with our identity, which client-go would take for itself.
	rival rival
}

// namesake returns an error if another process holds the Lease under our identity.
func (w *watchedLeases) namesake() error {
	if w.last == nil || holderOf(w.last) != w.authors.identity || w.authors.mine(w.last) || w.rival.left(w.now().mono) <= 0 {
		return nil
	}
	return fmt.Errorf("another process holds it under the identity of this process, %q; waiting until it expires", w.authors.identity)
}

func (w *watchedLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return watchedLease{w.LeasesGetter.Leases(namespace), w}
}

// watchedLease is the client of one namespace. The LeaseLock calls Get, Create and Update.
type watchedLease struct {
	coordinationclient.LeaseInterface

	w *watchedLeases
}

func (l watchedLease) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := l.w.saw(l.LeaseInterface.Get(ctx, name, o))
	if err == nil && !l.w.authors.mine(lease) {
		l.w.left, _ = l.w.stamper.inheritance(lease) // an unreadable handover counts as none
	}
	return lease, err
}

func (l watchedLease) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.w.saw(l.LeaseInterface.Create(ctx, lease, o))
}

// Update implements coordinationclient.LeaseInterface. A release adds the last writes, and an
// acquisition removes them.
func (l watchedLease) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease = l.w.stamped(lease.DeepCopy())
	written, err := l.LeaseInterface.Update(ctx, lease, o)
	if _, stamped := lease.Annotations[WrittenAnnotation]; stamped && notStored(err) {
		delete(lease.Annotations, WrittenAnnotation)
		written, err = l.LeaseInterface.Update(ctx, lease, o)
	}
	return l.w.saw(written, err)
}

// saw records a copy of an answer, because the LeaseLock changes it.
func (w *watchedLeases) saw(l *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err == nil {
		w.last = l.DeepCopy()
		w.rival.see(w.last, w.authors.mine(l), w.now().mono)
	}
	return l, err
}

func (w *watchedLeases) stamped(l *coordinationv1.Lease) *coordinationv1.Lease {
	t := w.current.Load()
	if holderOf(l) != "" || t == nil || l.Spec.RenewTime == nil {
		return unstamped(l)
	}
	writes, unknown := t.term.Written()
	return w.stamper.stamped(l, writes, unknown, l.Spec.RenewTime.Truncate(time.Microsecond))
}
