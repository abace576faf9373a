// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller has the controllers of the operator.
package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "my.domain/guestbook/api/v1"
)

// GuestbookReconciler reconciles a Guestbook.
type GuestbookReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// +kubebuilder:rbac:groups=webapp.my.domain,resources=guestbooks,verbs=get;list;watch
// +kubebuilder:rbac:groups=webapp.my.domain,resources=guestbooks/status,verbs=update
// +kubebuilder:rbac:groups=webapp.my.domain,resources=guestbooks/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update

// Reconcile makes a ConfigMap with the title and a Deployment that mounts it.
func (r *GuestbookReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var book webappv1.Guestbook
	if err := r.Get(ctx, req.NamespacedName, &book); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	config, err := r.configMap(ctx, &book)
	if err != nil {
		return ctrl.Result{}, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, Name: book.Name}}
	if _, err := ctrl.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		setSpec(deployment, &book, config.Name)
		return ctrl.SetControllerReference(&book, deployment, r.Scheme)
	}); err != nil {
		return ctrl.Result{}, err
	}
	available := metav1.Condition{
		Type: "Available", Status: metav1.ConditionFalse, Reason: "Starting", ObservedGeneration: book.Generation,
		Message: fmt.Sprintf("%d of %d servers are available", deployment.Status.AvailableReplicas, book.Spec.Replicas),
	}
	if deployment.Status.AvailableReplicas >= book.Spec.Replicas {
		available.Status, available.Reason = metav1.ConditionTrue, "Started"
	}
	if !meta.SetStatusCondition(&book.Status.Conditions, available) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Update(ctx, &book)
}

// configMap returns the ConfigMap of a Guestbook, which has a generated name.
func (r *GuestbookReconciler) configMap(ctx context.Context, book *webappv1.Guestbook) (*corev1.ConfigMap, error) {
	var list corev1.ConfigMapList
	if err := r.List(ctx, &list, client.InNamespace(book.Namespace), client.MatchingLabels(labels(book))); err != nil {
		return nil, err
	}
	data := map[string]string{"title": book.Spec.Title}
	if len(list.Items) == 0 {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, GenerateName: book.Name + "-", Labels: labels(book)}, Data: data}
		if err := ctrl.SetControllerReference(book, config, r.Scheme); err != nil {
			return nil, err
		}
		return config, r.Create(ctx, config)
	}
	config := &list.Items[0]
	if config.Data["title"] == book.Spec.Title {
		return config, nil
	}
	config.Data = data
	return config, r.Update(ctx, config)
}

// SetupWithManager adds the controller to a manager.
func (r *GuestbookReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&webappv1.Guestbook{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}).
		Named("guestbook").
		Complete(r)
}
