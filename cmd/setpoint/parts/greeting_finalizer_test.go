// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// TestGreetingFinalizer: a deletion waits for the cleanup, and leaves nothing behind.
func TestGreetingFinalizer(t *testing.T) {
	ctx, w := t.Context(), start(t)
	objects, configMaps := client.For[*v1alpha1.Greeting](w.admin), client.For[*corev1.ConfigMap](w.admin)
	key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
	if err := w.Apply(ctx, "config/samples/greeting.yaml"); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	hold := func(finalizers string) {
		t.Helper()
		patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
		if _, err := configMaps.Patch(ctx, greetingConfigMap(key), types.MergePatchType, patch); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.org/test"]`)
	if err := objects.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	obj, err := objects.GetLive(ctx, key)
	if err != nil || !slices.Contains(obj.Finalizers, greetingFinalizer) {
		t.Fatalf("while the ConfigMap is there, reading the object returns %v, %v", obj, err)
	}
	hold(`null`)
	w.settle(t)
	if _, err := objects.GetLive(ctx, key); !apierrors.IsNotFound(err) {
		t.Errorf("after the cleanup, reading the object returns the error %v", err)
	}
	if _, err := configMaps.GetLive(ctx, greetingConfigMap(key)); !apierrors.IsNotFound(err) {
		t.Errorf("after the cleanup, reading the ConfigMap returns the error %v", err)
	}
}
