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
	reasonRollingOut = "RollingOut"      // False: the Deployment is on its way
	reasonFailed     = "ApplyFailed"     // False: the message is the error; the operator goes on trying
)

// report writes the status: what the Deployment says, or why it could not be applied. Applying what is there already
// changes nothing and wakes nobody; to compare with the cache first would trust a copy that may lag behind.
func (r *reconciler) report(ctx context.Context, site *v1alpha1.Website, deploy *appsv1.Deployment, failure error) error {
	desired := websiteac.Website(site.Name, site.Namespace).
		WithUID(site.UID). // this very one, not a successor of the same name
		WithStatus(statusApply(status(site, deploy, failure)))
	if _, err := client.For[*v1alpha1.Website](r.client).ApplyStatus(ctx, desired); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// status is the status that the site should have. Times of conditions that did not change are kept.
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

// rolledOut is what `kubectl rollout status` waits for: the Deployment controller has seen the newest spec, every server
// runs it and is ready, and no other is left.
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
