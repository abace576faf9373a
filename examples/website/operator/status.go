// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
	websiteac "github.com/setpoint-dev/setpoint/examples/website/applyconfiguration/api/v1alpha1"
)

// Reasons of the condition Ready.
const (
	reasonReady      = "AllServersReady" // True
	reasonRollingOut = "RollingOut"      // False: the Deployment is in progress
	reasonFailed     = "ApplyFailed"     // False: the message is the error; the operator retries
)

// report writes the status: the state of the Deployment, or why it could not be applied. An
// unchanged status is a no-op for the API server and causes no event. A comparison with the cache
// would trust a copy that may be stale.
func (r *reconciler) report(ctx context.Context, site *v1alpha1.Website, deploy *appsv1.Deployment, failure error) error {
	desired := websiteac.Website(site.Name, site.Namespace).
		WithUID(site.UID). // not a successor of the same name
		WithStatus(statusApply(status(site, deploy, failure)))
	if _, err := client.For[*v1alpha1.Website](r.client).ApplyStatus(ctx, desired); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// status is the status that the site should have. It keeps the times of unchanged conditions.
func status(site *v1alpha1.Website, deploy *appsv1.Deployment, failure error) v1alpha1.WebsiteStatus {
	s := *site.Status.DeepCopy()
	s.ObservedGeneration = site.Generation
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: site.Generation}
	switch {
	case failure != nil:
		ready.Reason, ready.Message = reasonFailed, failure.Error()
	case rolledOut(deploy, replicas(site)):
		ready.Status, ready.Reason = metav1.ConditionTrue, reasonReady
		ready.Message = fmt.Sprintf("%d of %d servers are ready", deploy.Status.ReadyReplicas, replicas(site))
	default:
		ready.Reason = reasonRollingOut
		ready.Message = fmt.Sprintf("%d of %d servers are up to date, %d are ready", deploy.Status.UpdatedReplicas, replicas(site), deploy.Status.ReadyReplicas)
	}
	if deploy != nil {
		s.ReadyReplicas = deploy.Status.ReadyReplicas
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	return s
}

// rolledOut is the criterion of `kubectl rollout status`. The Deployment controller has seen the
// newest spec, every server runs it and is ready, and no other is left.
func rolledOut(d *appsv1.Deployment, want int32) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.ReadyReplicas == want && s.Replicas == want
}

func statusApply(s v1alpha1.WebsiteStatus) *websiteac.WebsiteStatusApplyConfiguration {
	ac := websiteac.WebsiteStatus().WithObservedGeneration(s.ObservedGeneration).WithReadyReplicas(s.ReadyReplicas)
	for _, c := range s.Conditions {
		ac.WithConditions(metaac.Condition().
			WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	return ac
}
