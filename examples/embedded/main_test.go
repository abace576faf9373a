// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEmbedded_WorksOnTheHostsInformersAndElector waits for the first Reconcile and stops the host.
// Then it looks at the ConfigMap and the Lease.
func TestEmbedded_WorksOnTheHostsInformersAndElector(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	configMaps := client.For[*corev1.ConfigMap](direct)
	key := types.NamespacedName{Namespace: "default", Name: "greeting"}
	created := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Data:       map[string]string{"hello": "world"},
	}
	if _, err := configMaps.Create(t.Context(), created); err != nil {
		t.Fatal(err)
	}

	reconciled := make(chan hook.Reconciled, 100)
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- host(ctx, cluster.Config(), key.Namespace, controller.Options{Hook: hook.On(func(r *hook.Reconciled) { reconciled <- *r })})
	}()
	select {
	case r := <-reconciled:
		if r.Err != nil {
			t.Error(r.Err)
		}
	case err := <-result:
		t.Fatal(err)
	}
	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}

	got, err := configMaps.GetLive(t.Context(), key)
	if err != nil || got.Labels[label] != "1" {
		t.Errorf("the label is %q, want 1 (error: %v)", got.GetLabels()[label], err)
	}
	lease, err := client.For[*coordinationv1.Lease](direct).GetLive(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: "embedded"})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the Lease was not released: %v, %v", lease, err)
	}
}
