// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command ginkgo is tested with a Ginkgo suite: see suite_test.go. The operator keeps a ConfigMap
// named team in each Namespace with the label example.com/team:
//
//	go run ./examples/ginkgo
//	go test ./examples/ginkgo
package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const label = "example.com/team"

func main() {
	cfg, err := client.LoadConfig("")
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
	mgr := manager.New(cfg, manager.Options{Name: "teams"})
	r := &reconciler{
		namespaces: cache.For[*corev1.Namespace](mgr.Cache()),
		configMaps: cache.For[*corev1.ConfigMap](mgr.Cache()),
		client:     client.For[*corev1.ConfigMap](mgr.Client()),
	}
	c := controller.New("teams", r, controller.Options{})
	c.Watch(source.Kind(r.namespaces, handler.Self(), handler.LabelsChanged))
	c.Watch(source.Kind(r.configMaps, handler.Map(func(_ context.Context, m *corev1.ConfigMap) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Name: m.Namespace}}, nil
	})))
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	namespaces *cache.Handle[*corev1.Namespace]
	configMaps *cache.Handle[*corev1.ConfigMap]
	client     *client.Handle[*corev1.ConfigMap]
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	namespace, err := r.namespaces.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil || namespace.Labels[label] == "" || namespace.DeletionTimestamp != nil {
		return controller.Result{}, err
	}
	current, err := r.configMaps.Get(ctx, types.NamespacedName{Namespace: key.Name, Name: "team"})
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	wanted := corev1ac.ConfigMap("team", key.Name).WithData(map[string]string{"team": namespace.Labels[label]})
	// Nothing is sent if current, which may be nil, has not changed since the last Apply.
	_, err = r.client.Apply(ctx, wanted, client.UnlessAlready(current))
	return controller.Result{}, err
}
