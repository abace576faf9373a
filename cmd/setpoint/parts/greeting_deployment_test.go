// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// TestGreetingDeployment: the operator owns the child, and creates it again.
func TestGreetingDeployment(t *testing.T) {
	ctx, w := t.Context(), start(t)
	if err := w.Apply(ctx, "config/samples/greeting.yaml"); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
	obj, err := client.For[*v1alpha1.Greeting](w.admin).GetLive(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	all := client.For[*appsv1.Deployment](w.admin)
	child := types.NamespacedName{Name: "greeting-sample", Namespace: "default"}
	var deleted types.UID
	for range 2 {
		owned, err := all.GetLive(ctx, child)
		if err != nil {
			t.Fatal(err)
		}
		if !metav1.IsControlledBy(owned, obj) {
			t.Errorf("the child has the owners %v", owned.GetOwnerReferences())
		}
		if owned.GetUID() == deleted {
			t.Error("the deleted child is still there")
		}
		deleted = owned.GetUID()
		if err := all.Delete(ctx, child); err != nil {
			t.Fatal(err)
		}
		w.settle(t)
	}
}
