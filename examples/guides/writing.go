// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"errors"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/setpoint-dev/setpoint/client"
)

// createOrUpdate is controllerutil.CreateOrUpdate.
func createOrUpdate(ctx context.Context, c *client.Client, image string) (*corev1.ConfigMap, error) {
	configMaps := client.For[*corev1.ConfigMap](c)
	site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "site"}}
	site, result, err := client.CreateOrUpdate(ctx, configMaps, site, func(m *corev1.ConfigMap) error {
		m.Data = map[string]string{"image": image}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slog.InfoContext(ctx, "site", "result", result) // unchanged, created or updated
	return site, nil
}

// createOrPatch is controllerutil.CreateOrPatch, from the object in the cache.
func createOrPatch(ctx context.Context, c *client.Client, cached *appsv1.Deployment) (*appsv1.Deployment, error) {
	d, _, err := client.CreateOrPatch(ctx, client.For[*appsv1.Deployment](c), cached, func(d *appsv1.Deployment) error {
		d.Spec.Replicas = new(int32(3))
		d.Status.Replicas = 3 // with a second request
		return nil
	})
	return d, err
}

// mergeFrom is client.MergeFrom, and MergeFromWithOptimisticLock.
func mergeFrom(ctx context.Context, c *client.Client, d *appsv1.Deployment, replicas int32) (*appsv1.Deployment, error) {
	deployments := client.For[*appsv1.Deployment](c)
	after := d.DeepCopy()
	after.Spec.Replicas = &replicas
	d, err := client.PatchFrom(ctx, deployments, d, after)
	if err != nil {
		return nil, err
	}
	after = d.DeepCopy()
	after.Status.Replicas = replicas // Status().Patch: the status has changed
	return client.PatchFrom(ctx, deployments, d, after, client.OptimisticLock())
}

// statusPatches is Status().Patch and Status().Apply.
func statusPatches(ctx context.Context, c *client.Client, key types.NamespacedName) error {
	deployments := client.For[*appsv1.Deployment](c)
	_, err := deployments.PatchStatus(ctx, key, types.MergePatchType, []byte(`{"status":{"replicas":3}}`))
	if err != nil {
		return err
	}
	desired := appsac.Deployment(key.Name, key.Namespace).WithStatus(appsac.DeploymentStatus().WithReplicas(3))
	_, err = deployments.ApplyStatus(ctx, desired)
	return err
}

// scale is SubResource("scale").
func scale(ctx context.Context, c *client.Client, d *appsv1.Deployment, replicas int32) error {
	scales := client.SubresourceOf[*autoscalingv1.Scale](client.For[*appsv1.Deployment](c), "scale")
	s, err := scales.Get(ctx, client.ObjectKeyFromObject(d)) // client.ObjectKeyFromObject(d)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	s.Spec.Replicas = replicas
	_, err = scales.Update(ctx, s, client.FieldOwner("scaler"))
	return err
}

// deleteAllOf is DeleteAllOf with InNamespace and MatchingLabels.
func deleteAllOf(ctx context.Context, c *client.Client, app string) error {
	return client.For[*corev1.ConfigMap](c).DeleteAll(ctx, client.ListOptions{
		Namespace: "default",
		Labels:    labels.SelectorFromSet(labels.Set{"app": app}),
	})
}

// applyUnforced is an apply without client.ForceOwnership.
func applyUnforced(ctx context.Context, c *client.Client, desired *appsac.DeploymentApplyConfiguration) error {
	_, err := client.For[*appsv1.Deployment](c).Apply(ctx, desired, client.NoForce())
	if conflict, ok := errors.AsType[*client.FieldConflictError](err); ok {
		slog.WarnContext(ctx, "fields of other owners", "conflicts", conflict.Conflicts)
	}
	if apierrors.IsConflict(err) {
		return nil // leave the fields to their owners
	}
	return err
}

// dryRun is client.DryRunAll and client.FieldValidation, for one call.
func dryRun(ctx context.Context, c *client.Client, d *appsv1.Deployment) error {
	_, err := client.For[*appsv1.Deployment](c).Update(ctx, d, client.DryRun(), client.FieldValidation(metav1.FieldValidationStrict))
	return err
}

// strict is client.WithFieldValidation. c is mgr.Client(), for example. Both clients share the
// ledger and the fence.
func strict(c *client.Client) (*client.Client, error) {
	return client.New(c.Config(), client.Options{
		Scheme: c.Scheme(), FieldOwner: "website-operator", FieldValidation: metav1.FieldValidationStrict,
	})
}

// untilScaled is client.WithWatch.
func untilScaled(ctx context.Context, c *client.Client, replicas int32) error {
	for event, err := range client.For[*appsv1.Deployment](c).WatchLive(ctx, client.ListOptions{Namespace: "default"}) {
		if err != nil {
			return err
		}
		if event.Type != watch.Deleted && event.Object.Status.Replicas == replicas {
			return nil
		}
	}
	return nil
}

// painter takes an interface, so that its test can pass a fake.
type painter struct {
	configMaps client.ReadWriter[*corev1.ConfigMap] // or a *client.Handle[*corev1.ConfigMap]
}

func (p *painter) paint(ctx context.Context, key types.NamespacedName, color string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	_, _, err := client.CreateOrUpdate(ctx, p.configMaps, m, func(m *corev1.ConfigMap) error {
		m.Data = map[string]string{"color": color}
		return nil
	})
	return err
}

// loud is a wrapper in the manner of controller-runtime's interceptor: it logs each update.
type loud struct {
	client.ReadWriter[*corev1.ConfigMap]
}

// Update implements client.Writer.
func (l loud) Update(ctx context.Context, m *corev1.ConfigMap, options ...client.Option) (*corev1.ConfigMap, error) {
	slog.InfoContext(ctx, "updating", "key", client.ObjectKeyFromObject(m))
	return l.ReadWriter.Update(ctx, m, options...)
}
