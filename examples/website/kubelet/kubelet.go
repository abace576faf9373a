// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet replaces the kubelet in the demo and the tests. It reports each pod of a Website
// as running and ready, although nothing runs. Kubernetes' own controllers do everything else, from
// the Deployment to its pods, and from their readiness to the Deployment's status. The sim has none
// of these controllers: NewDeployments replaces them, too.
package kubelet

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

type reconciler struct {
	pods   *cache.Handle[*corev1.Pod]
	client *client.Client
}

// New returns the stand-in. Run of the manager starts it.
func New(cfg *rest.Config, log *slog.Logger) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{Name: "kubelet-stand-in", Logger: log})
	r := &reconciler{pods: cache.For[*corev1.Pod](mgr.Cache()), client: mgr.Client()}
	c := controller.New("kubelet", r, controller.Options{})
	c.Watch(source.Kind(r.pods, handler.Self(), handler.Where(func(_, pod *corev1.Pod) bool {
		return pod != nil && pod.Labels["app.kubernetes.io/name"] == "website"
	})))
	mgr.Add(c)
	return mgr
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	pod, err := r.pods.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodRunning {
		return controller.Result{}, err
	}
	_, err = client.For[*corev1.Pod](r.client).ApplyStatus(ctx,
		coreac.Pod(pod.Name, pod.Namespace).WithUID(pod.UID).WithStatus(running(pod)))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return controller.Result{}, nil // deleted meanwhile
	}
	return controller.Result{}, err
}

// running is the status of a pod whose containers all run and are ready, as of now.
func running(pod *corev1.Pod) *coreac.PodStatusApplyConfiguration {
	now := metav1.Now()
	status := coreac.PodStatus().
		WithPhase(corev1.PodRunning).
		WithStartTime(now).
		WithConditions(coreac.PodCondition().WithType(corev1.PodReady).WithStatus(corev1.ConditionTrue))
	for _, c := range pod.Spec.Containers {
		status.WithContainerStatuses(coreac.ContainerStatus().
			WithName(c.Name).
			WithImage(c.Image).
			WithStarted(true).
			WithReady(true).
			WithState(coreac.ContainerState().WithRunning(coreac.ContainerStateRunning().WithStartedAt(now))))
	}
	return status
}
