// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"context"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/finalizer"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// greetingFinalizer keeps a deleted object until its cleanup has succeeded.
const greetingFinalizer = "demo.example.com/greeting-cleanup"

// +kubebuilder:rbac:groups=demo.example.com,resources=greetings,verbs=patch

// addCleanup declares the steps before the deletion of an object, in their order.
func (r *GreetingReconciler) addCleanup() (err error) {
	r.cleanup, err = finalizer.NewChain(client.For[*v1alpha1.Greeting](r.client),
		finalizer.Step[*v1alpha1.Greeting]{Finalizer: greetingFinalizer, Run: r.cleanUp})
	return err
}

// finalize does the steps that are left.
func (r *GreetingReconciler) finalize(ctx context.Context, obj *v1alpha1.Greeting) (controller.Result, error) {
	err := r.cleanup.Finalize(ctx, obj)
	if finalizer.IsWaiting(err) { // for a child, whose event makes the key due
		return controller.Result{}, nil
	}
	return controller.Result{}, err
}

// cleanUp deletes the children, and waits until they are gone. Here, also delete what the garbage
// collector does not know, such as a bucket. After an error or a crash it runs again, so it must
// succeed if its work is done.
func (r *GreetingReconciler) cleanUp(ctx context.Context, obj *v1alpha1.Greeting) error {
	_, err := r.children.Delete(ctx, obj)
	return err
}
