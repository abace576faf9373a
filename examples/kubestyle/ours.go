// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// The labels and annotations that the controllers use.
const (
	teamLabel         = "kubestyle.example.com/team"
	sweepLabel        = "kubestyle.example.com/sweep"
	expiresAnnotation = "kubestyle.example.com/expires"
)

// ours is a controller of Setpoint.
type ours = *controller.Controller[types.NamespacedName]

// newOurs returns a controller with the program's metrics.
func newOurs(h *host, name string, r controller.Func[types.NamespacedName]) ours {
	return controller.New(name, r, controller.Options{
		Workers: h.options.workers, Hook: h.metrics,
	})
}

// teams keeps a ConfigMap with the name of the team in each namespace that has one.
func teams(h *host) ours {
	namespaces := cache.Adopt[*corev1.Namespace](h.cache, h.factory.Core().V1().Namespaces().Informer(), cache.AdoptOptions{})
	configs := cache.Adopt[*corev1.ConfigMap](h.cache, h.factory.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{})
	c := newOurs(h, "teams", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		namespace, err := namespaces.Get(ctx, key)
		if err != nil || namespace.Labels[teamLabel] == "" || namespace.DeletionTimestamp != nil {
			return controller.Result{}, ignoreNotFound(err)
		}
		known, err := configs.Get(ctx, types.NamespacedName{Namespace: key.Name, Name: "team"})
		if ignoreNotFound(err) != nil {
			return controller.Result{}, err
		}
		config := corev1ac.ConfigMap("team", key.Name).WithData(map[string]string{"team": namespace.Labels[teamLabel]})
		_, err = client.For[*corev1.ConfigMap](h.ours).Apply(ctx, config, client.UnlessAlready(known))
		return controller.Result{}, err
	})
	c.Watch(source.Kind(namespaces, handler.Self()))
	c.Watch(source.Kind(configs, handler.Map(func(_ context.Context, config *corev1.ConfigMap) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Name: config.Namespace}}, nil
	}), handler.Named("team", handler.Where(func(before, after *corev1.ConfigMap) bool {
		return before != nil && before.Name == "team" || after != nil && after.Name == "team"
	}))))
	return c
}

// expiry deletes ConfigMaps when their time has come. It reads with a lister of the host.
func expiry(h *host) ours {
	informer := h.factory.Core().V1().ConfigMaps()
	c := newOurs(h, "expiry", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		config, err := informer.Lister().ConfigMaps(key.Namespace).Get(key.Name)
		if err != nil || config.Annotations[expiresAnnotation] == "" {
			return controller.Result{}, ignoreNotFound(err)
		}
		at, err := time.Parse(time.RFC3339, config.Annotations[expiresAnnotation])
		if err != nil {
			return controller.Result{}, controller.Terminal(err)
		}
		if left := time.Until(at); left > 0 {
			return controller.Result{RequeueAfter: left}, nil
		}
		// A concurrent change may have extended the time.
		only := client.Preconditions(config.UID, config.ResourceVersion)
		return controller.Result{}, ignoreNotFound(client.For[*corev1.ConfigMap](h.ours).Delete(ctx, key, only))
	})
	c.Watch(source.Kind(cache.Adopt[*corev1.ConfigMap](h.cache, informer.Informer(), cache.AdoptOptions{}), handler.Self()))
	return c
}
