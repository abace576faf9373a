// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/owner"
	"github.com/setpoint-dev/setpoint/source"
)

// serviceMonitor is served only where the Prometheus operator is installed.
var serviceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// monitored keeps a ServiceMonitor for each Service, where it can.
type monitored struct {
	services *cache.Handle[*corev1.Service]
	monitors *cache.Handle[*unstructured.Unstructured]
	write    *client.Handle[*unstructured.Unstructured]
}

func newMonitored(mgr *manager.Manager) {
	r := &monitored{
		services: cache.For[*corev1.Service](mgr.Cache()),
		monitors: cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: serviceMonitor}),
		write:    client.ForKind[*unstructured.Unstructured](mgr.Client(), serviceMonitor),
	}
	c := controller.New("monitored", r, controller.Options{RequireKinds: true})
	c.Watch(source.Kind(r.services, handler.Self()))
	c.Watch(source.Kind(r.monitors, handler.Owner(r.services)))
	c.Optional(r.monitors) // RequireKinds does not wait for it
	mgr.Add(c)
}

func (r *monitored) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	service, err := r.services.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	desired := monitor(service)
	if err := owner.Of(r.services, service).SetController(desired); err != nil {
		return controller.Result{}, err
	}
	current, err := r.monitors.Get(ctx, key)
	if client.IgnoreNotFound(err) == nil {
		_, err = r.write.Apply(ctx, client.UnstructuredConfiguration(desired), client.UnlessAlready(current))
	}
	if meta.IsNoMatchError(err) { // the kind is not served, so look again in a minute
		return controller.Result{RequeueAfter: time.Minute}, nil
	}
	return controller.Result{}, err
}

func monitor(service *corev1.Service) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector":  map[string]any{"matchLabels": map[string]any{"app": service.Name}},
		"endpoints": []any{map[string]any{"port": "metrics"}},
	}}}
	u.SetGroupVersionKind(serviceMonitor)
	u.SetNamespace(service.Namespace)
	u.SetName(service.Name)
	return u
}
