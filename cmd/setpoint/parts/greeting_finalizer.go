// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"context"
	"time"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/finalizer"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// greetingFinalizer keeps a deleted object until its cleanup has succeeded.
const greetingFinalizer = "demo.example.com/greeting-cleanup"

// +kubebuilder:rbac:groups=demo.example.com,resources=greetings,verbs=patch

// addCleanup declares the steps before the deletion of an object, in their order.
func (r *GreetingReconciler) addCleanup(cleanUp func(context.Context, *v1alpha1.Greeting) error) (err error) {
	r.cleanup, err = finalizer.NewChain(client.For[*v1alpha1.Greeting](r.client),
		finalizer.Step[*v1alpha1.Greeting]{Finalizer: greetingFinalizer, Run: cleanUp})
	return err
}

// finalize does the steps that are left.
func (r *GreetingReconciler) finalize(ctx context.Context, obj *v1alpha1.Greeting) (controller.Result, error) {
	err := r.cleanup.Finalize(ctx, obj)
	if finalizer.IsWaiting(err) {
		return controller.Result{RequeueAfter: 10 * time.Second}, nil
	}
	return controller.Result{}, err
}

// cleanUp deletes what the garbage collector does not know, such as a bucket: do that here. It may
// return finalizer.Waiting. After an error or a crash it runs again, so it must succeed if its work
// is done. If the children use what it deletes, return the error of r.children.Delete first.
func (r *GreetingReconciler) cleanUp(_ context.Context, _ *v1alpha1.Greeting) error {
	return nil
}
