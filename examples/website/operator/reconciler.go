// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/finalizer"
)

// reconciler brings one Website at a time to its spec. It keeps no state: everything that it needs
// the next time is in the cluster. So it may be killed and restarted at any point.
type reconciler struct {
	websites    *cache.Handle[*v1.Website]
	configMaps  *cache.Handle[*corev1.ConfigMap]
	services    *cache.Handle[*corev1.Service]
	deployments *cache.Handle[*appsv1.Deployment]
	client      *client.Client
	events      *events.Recorder
	finalizers  *finalizer.Chain[*v1.Website]
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
	owner := r.websites.OwnerRef(site)
	if _, err := own(ctx, r, r.configMaps, site, configMap(site, owner)); err != nil {
		return nil, err
	}
	if _, err := own(ctx, r, r.services, site, service(site, owner)); err != nil {
		return nil, err
	}
	return own(ctx, r, r.deployments, site, deployment(site, owner))
}

// own applies an object of the site. It does not touch an object of that name which the site does
// not control: a server-side apply would silently take it over. It sends nothing if the object is
// already as desired, else it records an event.
func own[T client.Object](ctx context.Context, r *reconciler, cached *cache.Handle[T], site *v1.Website, desired client.ApplyConfiguration) (T, error) {
	kind, name := cached.GroupVersionKind().Kind, *desired.GetName()
	current, err := cached.Get(ctx, types.NamespacedName{Namespace: site.Namespace, Name: name})
	if err != nil && !apierrors.IsNotFound(err) {
		return *new(T), err
	}
	exists := err == nil
	if exists && !metav1.IsControlledBy(current, site) {
		return *new(T), fmt.Errorf("the %s %s/%s exists and does not belong to this Website; delete it, or rename the Website", kind, site.Namespace, name)
	}
	applied, err := client.For[T](r.client).Apply(ctx, desired, client.UnlessAlready(current))
	if err != nil {
		return *new(T), fmt.Errorf("applying the %s %s/%s: %w", kind, site.Namespace, name, err)
	}
	if !exists || applied.GetResourceVersion() != current.GetResourceVersion() {
		r.events.Eventf(ctx, site, events.Normal, "Applied", "Apply"+kind, "applied the %s %s", kind, name)
	}
	return applied, nil
}
