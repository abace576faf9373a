// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const cleanup = "example.com/cleanup"

// porting has what docs/controller-runtime.md shows: for each Deployment it keeps a ConfigMap with
// its image, and reports in a condition of the Deployment.
type porting struct {
	deployments *cache.Handle[*appsv1.Deployment]
	configMaps  *cache.Handle[*corev1.ConfigMap]
	client      *client.Client
	cleanUp     func(ctx context.Context, d *appsv1.Deployment) error
}

// newPorting is For, Owns and WithOptions of the builder.
func newPorting(mgr *manager.Manager, cleanUp func(context.Context, *appsv1.Deployment) error) *porting {
	r := &porting{
		deployments: cache.For[*appsv1.Deployment](mgr.Cache()),
		configMaps:  cache.For[*corev1.ConfigMap](mgr.Cache()),
		client:      mgr.Client(),
		cleanUp:     cleanUp,
	}
	c := controller.New("porting", r, controller.Options{Workers: 4})
	c.Watch(source.Kind(r.deployments, handler.Self(), handler.GenerationChanged))
	c.Watch(source.Kind(r.configMaps, handler.Owner(r.deployments)))
	mgr.Add(c)
	return r
}

func (r *porting) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	d, err := r.deployments.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	deployments := client.For[*appsv1.Deployment](r.client)
	if d.DeletionTimestamp != nil {
		if err := r.cleanUp(ctx, d); err != nil {
			return controller.Result{}, err
		}
		_, err := deployments.RemoveFinalizer(ctx, d, cleanup)
		return controller.Result{}, err
	}
	if d, err = deployments.EnsureFinalizer(ctx, d, cleanup); err != nil {
		return controller.Result{}, err
	}
	if err := r.apply(ctx, d); err != nil {
		return controller.Result{}, err
	}
	condition := appsv1.DeploymentCondition{Type: "example.com/Listed", Status: corev1.ConditionTrue}
	if len(d.Status.Conditions) > 0 && d.Status.Conditions[0].Type == condition.Type {
		return controller.Result{}, nil
	}
	d.Status.Conditions = []appsv1.DeploymentCondition{condition}
	stored, err := deployments.UpdateStatus(ctx, d) // d itself does not change
	if err != nil {
		return controller.Result{}, err
	}
	controller.Logger(ctx).Info("reported", "condition", condition.Type, "resourceVersion", stored.ResourceVersion)
	return controller.Result{}, nil
}

func (r *porting) apply(ctx context.Context, owner *appsv1.Deployment) error {
	current, err := r.configMaps.Get(ctx, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	desired := coreac.ConfigMap(owner.Name, owner.Namespace).
		WithOwnerReferences(r.deployments.OwnerRef(owner)).
		WithData(map[string]string{"image": owner.Spec.Template.Spec.Containers[0].Image})
	_, err = client.For[*corev1.ConfigMap](r.client).Apply(ctx, desired, client.UnlessAlready(current))
	return err
}

// byNode is IndexField and MatchingFields.
func byNode(pods *cache.Handle[*corev1.Pod]) func(ctx context.Context, node string) ([]*corev1.Pod, error) {
	index := cache.NewIndex(pods, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
	return func(ctx context.Context, node string) ([]*corev1.Pod, error) {
		return index.List(ctx, node, cache.ListOptions{Namespace: "default"})
	}
}

// onlyMetadata is builder.OnlyMetadata.
func onlyMetadata(mgr *manager.Manager) *cache.Handle[*metav1.PartialObjectMetadata] {
	return cache.ForScope[*metav1.PartialObjectMetadata](mgr.Cache(), cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")})
}

// unlessServed is meta.IsNoMatchError: a kind whose CRD may be missing.
func unlessServed(ctx context.Context, c *client.Client) (bool, error) {
	err := client.For[*appsv1.Deployment](c).Served(ctx)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
