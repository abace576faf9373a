// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command tenants shares its workers fairly. Each namespace is a tenant: a thousand changes in one
// do not delay the single change in another. Namespaces whose names begin with "gold-" get four
// times the share. It logs the ConfigMaps in the order of their Reconciles:
//
//	go run ./examples/tenants
//
// Classes need no configuration. The initial list is background work and a change is normal. A user
// who waits sets the annotation setpoint.dev/requeue to the current time, and the ConfigMap is
// interactive: it gets ahead of both.
package main

import (
	"context"
	"log"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

func main() {
	cfg, err := client.LoadConfig("")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	mgr, _ := operator(cfg, func(key types.NamespacedName) { slog.Info("reconcile", "key", key) })
	err = mgr.Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func operator(cfg *rest.Config, reconcile func(types.NamespacedName)) (*manager.Manager, *controller.Controller[types.NamespacedName]) {
	mgr := manager.New(cfg, manager.Options{Name: "tenants"})
	r := controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
		reconcile(key)
		return controller.Result{}, nil
	})
	c := controller.NewWithQueue("tenants", r, controller.Options{}, workqueue.Options[types.NamespacedName]{
		Tenant: func(key types.NamespacedName) string { return key.Namespace },
		TenantWeight: func(namespace string) float64 {
			if strings.HasPrefix(namespace, "gold-") {
				return 4
			}
			return 1
		},
	})
	c.Watch(source.Kind(cache.For[*corev1.ConfigMap](mgr.Cache()), handler.Self()))
	mgr.Add(c)
	return mgr, c
}
