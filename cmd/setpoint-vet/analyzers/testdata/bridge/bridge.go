// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
)

type reconciler struct {
	client.Client
	ctx context.Context
}

func setUp(ctx context.Context, m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(&reconciler{m.GetClient(), ctx})
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &corev1.ConfigMap{}
	if err := r.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Update(r.ctx, m); err != nil { // want `Update in a Reconcile with a context that is not derived`
		return ctrl.Result{}, err
	}
	if err := r.Status().Update(r.ctx, m); err != nil { // want `Update in a Reconcile with a context that is not derived`
		return ctrl.Result{}, err
	}
	_, err := controllerutil.CreateOrUpdate(context.Background(), r.Client, m, func() error { return nil }) // want `context.Background\(\) in a Reconcile; use ctx`
	return ctrl.Result{}, err
}

var _ = reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var c client.Client
	return reconcile.Result{}, c.Delete(context.TODO(), &corev1.ConfigMap{}) // want `context.TODO\(\) in a Reconcile; use ctx`
})
