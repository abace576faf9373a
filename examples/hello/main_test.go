// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHello_CountsTheEntries changes a ConfigMap on a real API server and looks at its label.
func TestHello_CountsTheEntries(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	mgr := operator(cluster.Config())
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()

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
	got := labelled(t, mgr.Idle, configMaps, key, "1")
	got.Data["bye"] = "world"
	got.Labels[label] = "100"
	if _, err := configMaps.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	labelled(t, mgr.Idle, configMaps, key, "2")

	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// labelled waits until the operator has nothing left to do, and returns the object with the label.
func labelled(
	t *testing.T, idle func(context.Context) error, h *client.Handle[*corev1.ConfigMap], key types.NamespacedName, want string,
) *corev1.ConfigMap {
	t.Helper()
	if err := idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := h.GetLive(t.Context(), key)
	if err != nil || got.Labels[label] != want {
		t.Fatalf("the label is %q, want %q (error: %v)", got.GetLabels()[label], want, err)
	}
	return got
}
