// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

type rollout struct {
	deployments *cache.Handle[*appsv1.Deployment]
	client      *client.Client
}

// NewDeployments returns the stand-in for the Deployment controller and all that follows it. It
// makes no pods: it reports each Deployment as rolled out. Run of the manager starts it.
func NewDeployments(cfg *rest.Config, log *slog.Logger) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{Name: "deployment-stand-in", Logger: log})
	r := &rollout{deployments: cache.For[*appsv1.Deployment](mgr.Cache()), client: mgr.Client()}
	c := controller.New("deployment", r, controller.Options{})
	c.Watch(source.Kind(r.deployments, handler.Self(), handler.GenerationChanged))
	mgr.Add(c)
	return mgr
}

func (r *rollout) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	d, err := r.deployments.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil || d.DeletionTimestamp != nil {
		return controller.Result{}, err
	}
	n := int32(1) // the default of the API server
	if d.Spec.Replicas != nil {
		n = *d.Spec.Replicas
	}
	_, err = client.For[*appsv1.Deployment](r.client).ApplyStatus(ctx, appsac.Deployment(d.Name, d.Namespace).
		WithUID(d.UID).
		WithStatus(appsac.DeploymentStatus().
			WithObservedGeneration(d.Generation).
			WithReplicas(n).WithUpdatedReplicas(n).WithReadyReplicas(n).WithAvailableReplicas(n)))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return controller.Result{}, nil // deleted meanwhile
	}
	return controller.Result{}, err
}
