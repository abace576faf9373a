// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package unittest shows how to test the reconciler of a custom resource in milliseconds, without a
// control plane. A Preview runs an image for a limited time. The tests are in operator_test.go.
package unittest

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/status"
)

func operator(cfg *rest.Config) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{Name: "preview", Scheme: NewScheme()})
	r := newReconciler(mgr.Cache(), mgr.Client())
	c := controller.New("preview", r, controller.Options{})
	c.Watch(source.Kind(r.previews, handler.Self()))
	c.Watch(source.Kind(r.deployments, handler.Owner(r.previews)))
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	previews    *cache.Handle[*Preview]
	deployments *cache.Handle[*appsv1.Deployment]
	client      *client.Client
}

func newReconciler(view *cache.Cache, c *client.Client) *reconciler {
	return &reconciler{cache.For[*Preview](view), cache.For[*appsv1.Deployment](view), c}
}

// Reconcile keeps a Deployment for each Preview, and deletes the Preview when its time is over. The
// garbage collector then deletes the Deployment.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	p, err := r.previews.Get(ctx, key)
	if err != nil || p.DeletionTimestamp != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	var left time.Duration
	if lifetime := p.Spec.Lifetime.Duration; lifetime > 0 {
		if left = time.Until(p.CreationTimestamp.Add(lifetime)); left <= 0 {
			return controller.Result{}, client.For[*Preview](r.client).Delete(ctx, key, client.Preconditions(p.UID, ""))
		}
	}
	d, err := client.For[*appsv1.Deployment](r.client).Apply(ctx, r.deployment(p))
	s := status.For(p, p.Status.Conditions)
	switch {
	case err != nil:
		s.False(status.Ready, "ApplyFailed", err.Error())
	case d.Status.ReadyReplicas == 0:
		s.False(status.Ready, "Starting", "the Deployment has no ready replica")
	default:
		s.True(status.Ready, "Running", "the image runs")
	}
	p.Status.Conditions = s.Conditions()
	if _, failed := status.Update(ctx, client.For[*Preview](r.client), s, p); failed != nil {
		return controller.Result{}, failed
	}
	if err != nil {
		return controller.Result{}, err // with RequeueAfter, it would be tried again only then
	}
	return controller.Result{RequeueAfter: left}, nil
}

func (r *reconciler) deployment(p *Preview) *appsac.DeploymentApplyConfiguration {
	labels := map[string]string{"example.com/preview": p.Name}
	return appsac.Deployment(p.Name, p.Namespace).
		WithOwnerReferences(r.previews.OwnerRef(p)).
		WithSpec(appsac.DeploymentSpec().
			WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreac.PodTemplateSpec().
				WithLabels(labels).
				WithSpec(coreac.PodSpec().WithContainers(coreac.Container().WithName("preview").WithImage(p.Spec.Image)))))
}
