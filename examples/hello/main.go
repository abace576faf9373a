// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command hello is the smallest useful operator. It counts the entries of each ConfigMap and keeps
// the count in a label:
//
//	go run ./examples/hello
package main

import (
	"context"
	"log"
	"os/signal"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const label = "example.com/entries"

func main() {
	cfg, err := client.LoadConfig("") // KUBECONFIG, or in a cluster the Pod's ServiceAccount
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = operator(cfg).Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func operator(cfg *rest.Config) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{Name: "hello"})
	r := &reconciler{cache.For[*corev1.ConfigMap](mgr.Cache()), client.For[*corev1.ConfigMap](mgr.Client())}
	c := controller.New("hello", r, controller.Options{})
	c.Watch(source.Kind(r.cached, handler.Self()))
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	cached *cache.Handle[*corev1.ConfigMap]  // reads come from the cache
	client *client.Handle[*corev1.ConfigMap] // writes go to the API server
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := r.cached.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err // retried with backoff
	}
	if entries := strconv.Itoa(len(m.Data)); m.Labels[label] != entries {
		metav1.SetMetaDataLabel(&m.ObjectMeta, label, entries)
		_, err = r.client.Update(ctx, m)
	}
	return controller.Result{}, err
}
