// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/finalizer"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// TestGreetingFinalizer: the operator adds the finalizer, and a deletion runs the cleanup.
func TestGreetingFinalizer(t *testing.T) {
	ctx, w := t.Context(), start(t)
	objects := client.For[*v1alpha1.Greeting](w.admin)
	key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
	if err := w.Apply(ctx, "config/samples/greeting.yaml"); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	if obj, err := objects.GetLive(ctx, key); err != nil || !slices.Contains(obj.Finalizers, greetingFinalizer) {
		t.Fatalf("without the finalizer, reading the object returns %v, %v", obj, err)
	}
	if err := objects.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	if _, err := objects.GetLive(ctx, key); !apierrors.IsNotFound(err) {
		t.Errorf("after the cleanup, reading the object returns the error %v", err)
	}
}

// TestGreetingFinalizer_KeepsTheObject: until the cleanup has succeeded, the object stays.
func TestGreetingFinalizer_KeepsTheObject(t *testing.T) {
	ctx, cluster := t.Context(), startCluster(t) // the operator does not run
	c := admin(t, cluster.Config())
	objects := client.For[*v1alpha1.Greeting](c)
	key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
	if err := cluster.Apply(ctx, "config/samples/greeting.yaml"); err != nil {
		t.Fatal(err)
	}
	obj, err := objects.GetLive(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var cleanUp error
	r := &GreetingReconciler{client: c}
	if err := r.addCleanup(func(context.Context, *v1alpha1.Greeting) error { return cleanUp }); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cleanup.Ensure(ctx, obj); err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	for _, cleanUp = range []error{errors.New("no answer"), finalizer.Waiting("a backup"), nil} {
		if obj, err = objects.GetLive(ctx, key); err != nil {
			t.Fatalf("before the cleanup has succeeded, reading the object returns the error %v", err)
		}
		result, err := r.finalize(ctx, obj)
		waits := finalizer.IsWaiting(cleanUp)
		if failed := err != nil; failed != (cleanUp != nil && !waits) || waits != (result.RequeueAfter > 0) {
			t.Errorf("after the cleanup has returned %v, finalize returns %v, %v", cleanUp, result, err)
		}
	}
	if _, err := objects.GetLive(ctx, key); !apierrors.IsNotFound(err) {
		t.Errorf("after the cleanup, reading the object returns the error %v", err)
	}
}
