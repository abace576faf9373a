// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/manager"
)

func serviceMonitorCRD() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "servicemonitors." + serviceMonitor.Group},
		"spec": map[string]any{
			"group": serviceMonitor.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": serviceMonitor.Kind, "listKind": "ServiceMonitorList", "plural": "servicemonitors", "singular": "servicemonitor"},
			"versions": []any{map[string]any{"name": serviceMonitor.Version, "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
}

// TestOptional_AServiceMonitorWhereItIsServed: the CRD is installed, deleted and installed again,
// while the operator runs.
func TestOptional_AServiceMonitorWhereItIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, key := t.Context(), types.NamespacedName{Namespace: "default", Name: "web"}
		cfg := sim.New(t, scheme.Scheme, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}).Config()
		mgr := manager.New(cfg, manager.Options{Name: "monitored", Logger: slog.New(slog.DiscardHandler)})
		newMonitored(mgr)
		defer run(t, mgr)()
		c, err := client.New(cfg, client.Options{FieldOwner: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		monitors := client.ForKind[*unstructured.Unstructured](c, serviceMonitor)
		crds := client.ForKind[*unstructured.Unstructured](c, schema.GroupVersionKind{
			Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		})
		for round := range 2 {
			time.Sleep(10 * time.Minute)
			if err := mgr.Idle(ctx); err != nil { // no Reconcile fails
				t.Error(err)
			}
			if _, err := monitors.GetLive(ctx, key); !meta.IsNoMatchError(err) {
				t.Errorf("before round %d: %v", round, err)
			}
			if _, err := crds.Create(ctx, serviceMonitorCRD()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute + 5*time.Second)
			if found, err := monitors.GetLive(ctx, key); err != nil || metav1.GetControllerOf(found) == nil {
				t.Errorf("in round %d: %v, %v", round, found, err)
			}
			if err := crds.Delete(ctx, types.NamespacedName{Name: serviceMonitorCRD().GetName()}); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
}
