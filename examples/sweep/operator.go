// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package passwords makes a Secret with a random password for each ServiceAccount with the label
// example.com/password. Its test crashes it at each write.
package passwords

import (
	"context"
	"crypto/rand"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const label = "example.com/password"

func operator(cfg *rest.Config, log *slog.Logger) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{
		Name: "passwords", Logger: log, LeaderElection: &leaderelection.Options{Namespace: "default", Lease: "passwords"},
	})
	r := &reconciler{cache.For[*corev1.ServiceAccount](mgr.Cache()), cache.For[*corev1.Secret](mgr.Cache()), mgr.Client()}
	c := controller.New("passwords", r, controller.Options{})
	c.Watch(source.Kind(r.accounts, handler.Self()))
	c.Watch(source.Kind(r.secrets, handler.Owner(r.accounts)))
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	accounts *cache.Handle[*corev1.ServiceAccount]
	secrets  *cache.Handle[*corev1.Secret]
	client   *client.Client
}

// Reconcile uses one name for the Secret of an account. With a generated name, a create that
// arrives after a crash, and after the lists of the next process, would leave two.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	account, err := r.accounts.Get(ctx, key)
	if err != nil || account.Labels[label] == "" || account.DeletionTimestamp != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	if _, err := r.secrets.Get(ctx, key); !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	_, err = client.For[*corev1.Secret](r.client).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(account, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))},
		},
		StringData: map[string]string{"password": rand.Text()},
	})
	return controller.Result{}, err
}
