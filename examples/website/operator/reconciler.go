// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/finalizer"
)

// reconciler brings one Website at a time to its spec. It keeps no state: everything that it needs
// the next time is in the cluster. So it may be killed and restarted at any point.
type reconciler struct {
	websites   *cache.Handle[*v1.Website]
	configMaps *cache.Handle[*corev1.ConfigMap]
	client     *client.Client
	children   *children.Set[*v1.Website]
	events     *events.Recorder
	finalizers *finalizer.Chain[*v1.Website]
}

// Reconcile does the same after every event: it reads the spec and applies all of it.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	site, err := r.websites.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // finalized and gone
	}
	if err != nil {
		return controller.Result{}, err
	}
	if site.DeletionTimestamp != nil {
		return controller.Result{}, r.finalizers.Finalize(ctx, site)
	}
	if site, err = r.finalizers.Ensure(ctx, site); apierrors.IsNotFound(err) {
		return controller.Result{}, nil // gone; the event will follow
	} else if err != nil {
		return controller.Result{}, err
	}
	deploy, err := r.apply(ctx, site)
	return controller.Result{}, errors.Join(err, r.report(ctx, site, deploy, err))
}

// apply creates and updates all objects, and returns the Deployment as stored.
func (r *reconciler) apply(ctx context.Context, site *v1.Website) (*appsv1.Deployment, error) {
	if err := r.publish(ctx, site); err != nil {
		return nil, err
	}
	result, err := r.children.Reconcile(ctx, site, configMap(site), service(site), deployment(site))
	if changes := result.Changes(); changes != "" {
		r.events.Eventf(ctx, site, events.Normal, "Applied", "ApplyChildren", "%s", changes)
	}
	if err != nil {
		return nil, err
	}
	return children.Object[*appsv1.Deployment](ctx, result, site.Name)
}
