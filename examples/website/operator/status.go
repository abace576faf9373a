// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	websiteac "github.com/setpoint-dev/setpoint/examples/website/applyconfiguration/api/v1"
	"github.com/setpoint-dev/setpoint/status"
)

// Reasons of the condition Ready.
const (
	reasonReady      = "AllServersReady" // True
	reasonRollingOut = "RollingOut"      // False: the Deployment is in progress
	reasonFailed     = "ApplyFailed"     // False: the message is the error; the operator retries
)

// report writes the status: the state of the Deployment, or why it could not be applied. It is
// refused if the spec has changed meanwhile. An unchanged status is a no-op for the API server and
// causes no event. A comparison with the cache would trust a copy that may be stale.
func (r *reconciler) report(ctx context.Context, site *v1.Website, deploy *appsv1.Deployment, failure error) error {
	conditions := conditions(site, deploy, failure)
	ready := site.Status.ReadyReplicas // a failure does not affect the running servers
	if deploy != nil {
		ready = deploy.Status.ReadyReplicas
	}
	desired := websiteac.Website(site.Name, site.Namespace).WithStatus(websiteac.WebsiteStatus().
		WithObservedGeneration(site.Generation).WithReadyReplicas(ready).WithConditions(conditions.ApplyConfigurations()...))
	if _, err := status.Apply(ctx, client.For[*v1.Website](r.client), conditions, desired); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// conditions are those that the site should have.
func conditions(site *v1.Website, deploy *appsv1.Deployment, failure error) *status.Set {
	s := status.For(site, site.Status.Conditions)
	switch {
	case failure != nil:
		s.False(status.Ready, reasonFailed, failure.Error())
	case rolledOut(deploy, replicas(site)):
		s.True(status.Ready, reasonReady, fmt.Sprintf("%d of %d servers are ready", deploy.Status.ReadyReplicas, replicas(site)))
	default:
		s.False(status.Ready, reasonRollingOut,
			fmt.Sprintf("%d of %d servers are up to date, %d are ready", deploy.Status.UpdatedReplicas, replicas(site), deploy.Status.ReadyReplicas))
	}
	return s
}

// rolledOut is the criterion of `kubectl rollout status`. The Deployment controller has seen the
// newest spec, every server runs it and is ready, and no other is left.
func rolledOut(d *appsv1.Deployment, want int32) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.ReadyReplicas == want && s.Replicas == want
}
