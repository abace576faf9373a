// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

// operate runs a replica of an operator until the end of the test, and returns its debug server.
// It reconciles ConfigMaps: those named slow take until then, and those named broken fail.
func operate(t *testing.T, cfg *rest.Config, e manager.Coordinator) http.Handler {
	mgr := manager.New(cfg, manager.Options{Name: "website-operator", LeaderElection: e, Logger: slog.New(slog.DiscardHandler)})
	maps := cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Namespaces: cache.NewSet("shop")})
	end := make(chan struct{})
	reconcile := func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
		switch key.Name {
		case "slow":
			<-end
		case "broken":
			return controller.Result{}, controller.Terminal(errors.New("spec.domain: not a host name"))
		}
		return controller.Result{}, nil
	}
	c := controller.New("website", controller.Func[types.NamespacedName](reconcile), controller.Options{Workers: 2})
	c.Watch(source.Kind(maps, handler.Self()))
	mgr.Add(c)
	ctx, stop := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	t.Cleanup(func() {
		close(end)
		stop()
		testkit.Equal(t, <-result, nil, "the operator")
	})
	return debug.Handler(mgr, debug.Options{})
}

// leader and member are the two ways to run replicas, as the Pod would.
func leader(namespace, pod string) manager.Coordinator {
	return &leaderelection.Options{Lease: "website-operator", Namespace: namespace, Identity: pod + "_5b1f0c1e"}
}

func member(namespace, pod string) manager.Coordinator {
	return &shard.Options{Settle: time.Millisecond, Election: leaderelection.Options{
		Lease: "website-shards", Namespace: namespace, Identity: pod + "_5b1f0c1e",
	}}
}
