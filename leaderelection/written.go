// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// written remembers the Lease as it was last written, which client-go's lock keeps to itself.
type written struct {
	coordinationclient.LeasesGetter
	lease *coordinationv1.Lease
}

// Leases implements LeasesGetter.
func (w *written) Leases(namespace string) coordinationclient.LeaseInterface {
	return leases{w.LeasesGetter.Leases(namespace), w}
}

type leases struct {
	coordinationclient.LeaseInterface
	written *written
}

// Create implements LeaseInterface.
func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	answer, err := l.LeaseInterface.Create(ctx, lease, o)
	if err == nil {
		l.written.lease = answer
	}
	return answer, err
}

// Update implements LeaseInterface.
func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	answer, err := l.LeaseInterface.Update(ctx, lease, o)
	if err == nil {
		l.written.lease = answer
	}
	return answer, err
}
