// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/status"
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// limit is how long a test waits for one change.
const limit = time.Minute

// world is an API server with a running operator, and an administrator who looks at the objects of
// one name.
type world struct {
	mgr    *manager.Manager
	admin  *client.Client
	config *rest.Config // of admin
	key    types.NamespacedName
}

// start runs the operator with cfg until the test ends. admin has all permissions.
func start(t *testing.T, cfg, admin *rest.Config) *world {
	t.Helper()
	mgr, err := operator(cfg, manager.Options{Logger: slog.New(slog.DiscardHandler)}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	runManager(t, mgr)
	c, err := client.New(admin, client.Options{Scheme: mgr.Client().Scheme(), FieldOwner: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &world{mgr: mgr, admin: c, config: admin, key: types.NamespacedName{Namespace: "default", Name: "sessions"}}
}

// runManager runs a manager until the test ends.
func runManager(t *testing.T, mgr *manager.Manager) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := mgr.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// everything is a spec with all children.
func everything() v1beta1.MemcachedSpec {
	var s v1beta1.MemcachedSpec
	s.HighAvailability.PodDisruptionBudget.Enabled = true
	s.Monitoring = v1beta1.MonitoringSpec{Enabled: true, ServiceMonitor: &v1beta1.ServiceMonitorSpec{}}
	s.Security.NetworkPolicy.Enabled = true
	s.Autoscaling = v1beta1.AutoscalingSpec{Enabled: true, MaxReplicas: 6}
	return s
}

func (w *world) create(t *testing.T, spec v1beta1.MemcachedSpec) {
	t.Helper()
	mc := &v1beta1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: w.key.Name}, Spec: spec}
	if _, err := client.For[*v1beta1.Memcached](w.admin).Create(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
}

// change changes the spec of the Memcached.
func (w *world) change(t *testing.T, f func(*v1beta1.MemcachedSpec)) {
	t.Helper()
	update(t, w, func(mc *v1beta1.Memcached) { f(&mc.Spec) })
}

// update changes an object, and again after a conflict.
func update[T any, P interface {
	*T
	client.Object
}](t *testing.T, w *world, f func(P)) {
	t.Helper()
	for {
		obj := must[P](t, w)
		f(obj)
		_, err := client.For[P](w.admin).Update(t.Context(), obj)
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
}

// idle waits until the operator has nothing left to do, and requires that it does not fail.
func (w *world) idle(t *testing.T) {
	t.Helper()
	if err := w.mgr.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// await waits until the Memcached has the conditions.
func (w *world) await(t *testing.T, goals ...status.Goal) *v1beta1.Memcached {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	mc, err := status.Await(ctx, cache.For[*v1beta1.Memcached](w.mgr.Cache()), w.key, goals...)
	if err != nil {
		t.Fatal(err)
	}
	return mc
}

// get returns the object of the kind, or nil.
func get[T any, P interface {
	*T
	client.Object
}](t *testing.T, w *world) P {
	t.Helper()
	obj, err := client.For[P](w.admin).GetLive(t.Context(), w.key)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func must[P interface {
	*T
	client.Object
}, T any](t *testing.T, w *world) P {
	t.Helper()
	obj := get[T, P](t, w)
	if obj == nil {
		t.Fatalf("there is no %T", obj)
	}
	return obj
}

// kinds returns the kinds of the objects of the Memcached's name, except the ServiceMonitor.
func (w *world) kinds(t *testing.T) (names []string) {
	t.Helper()
	for _, k := range []struct {
		name   string
		exists bool
	}{
		{"Deployment", get[appsv1.Deployment](t, w) != nil},
		{"Service", get[corev1.Service](t, w) != nil},
		{"PodDisruptionBudget", get[policyv1.PodDisruptionBudget](t, w) != nil},
		{"HorizontalPodAutoscaler", get[autoscalingv2.HorizontalPodAutoscaler](t, w) != nil},
		{"NetworkPolicy", get[networkingv1.NetworkPolicy](t, w) != nil},
	} {
		if k.exists {
			names = append(names, k.name)
		}
	}
	return names
}

// monitor returns the ServiceMonitor. The error is one of the API server.
func (w *world) monitor(t *testing.T) (*unstructured.Unstructured, error) {
	t.Helper()
	return client.ForKind[*unstructured.Unstructured](w.admin, serviceMonitorKind).GetLive(t.Context(), w.key)
}

// installMonitors installs the CRD of ServiceMonitors.
func (w *world) installMonitors(t *testing.T) {
	t.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "servicemonitors." + serviceMonitorKind.Group},
		"spec": map[string]any{
			"group": serviceMonitorKind.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": serviceMonitorKind.Kind, "listKind": "ServiceMonitorList", "plural": "servicemonitors", "singular": "servicemonitor"},
			"versions": []any{map[string]any{"name": serviceMonitorKind.Version, "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	if _, err := client.ForKind[*unstructured.Unstructured](w.admin, crdKind).Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}
