// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// releaseLimit is for how long a release is tried: less than what a manager leaves a process that stops.
const releaseLimit = 2 * time.Second

// release gives the Lease up, if it is still ours, so that a rival need not wait for it to expire. A Lease that cannot be
// released expires.
func (e *Elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	// A renewal that was under way when we stopped may still arrive and change the version under us: read and try again.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return e.tryRelease(ctx) })
	if err != nil {
		err = fmt.Errorf("release the Lease %s: %w", e, err)
	}
	if e.o.Hooks.Released != nil {
		e.o.Hooks.Released(e.o.Lease, err)
	}
}

func (e *Elector) tryRelease(ctx context.Context) error {
	leases := e.leases.Leases(e.o.Namespace)
	lease, err := leases.Get(ctx, e.o.Lease, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != e.o.Identity {
		return nil // L4: it is not ours any more
	}
	_, err = leases.Update(ctx, released(lease, time.Now()), metav1.UpdateOptions{})
	return err
}

// released is the Lease as client-go writes it at a release: no holder, and one second to its expiry, so that electors which
// do not look at the holder take it soon as well.
func released(lease *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	nobody, second, at := "", int32(1), metav1.NewMicroTime(now)
	lease.Spec.HolderIdentity = &nobody
	lease.Spec.LeaseDurationSeconds = &second
	lease.Spec.RenewTime, lease.Spec.AcquireTime = &at, &at
	return lease
}
