// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizer runs the steps that must precede the deletion of an object, and shows which of
// them hangs.
//
// A finalizer is a name in an object's metadata. While an object has one, the API server keeps the
// object and only sets its deletionTimestamp. [Add], [Remove] and [Has] change and read the names
// of an object in memory. To write a single finalizer, use EnsureFinalizer and RemoveFinalizer of
// client.Handle.
//
// # Chains
//
// A [Chain] has one finalizer for each of several steps, in order:
//
//	chain, err := finalizer.NewChain(client.For[*v1alpha1.Website](c),
//		finalizer.Step[*v1alpha1.Website]{Finalizer: "web.example.com/traffic", Run: drain},
//		finalizer.Step[*v1alpha1.Website]{Finalizer: "web.example.com/bucket", Run: deleteBucket},
//	)
//
// In Reconcile:
//
//	if site.DeletionTimestamp != nil {
//		err := chain.Finalize(ctx, site)
//		if finalizer.IsWaiting(err) {
//			return controller.Result{RequeueAfter: 10 * time.Second}, nil
//		}
//		return controller.Result{}, err
//	}
//	site, err = chain.Ensure(ctx, site)
//
// [Chain.Ensure] adds all finalizers that are missing, so call it before you create anything that a
// step cleans up. [Chain.Finalize] runs the steps in the order in which they are listed: the first
// in the list runs first. After each step it removes the finalizer of that step. So the list of
// finalizers that `kubectl get -o yaml` prints begins with the step that is next.
//
// A step may run again after an error or a crash, so it must succeed if its work is done already. A
// step that waits for another system returns [Waiting]. Then, as after an error, Finalize returns a
// [StepError], with the step and the time since when it is tried. The next Finalize begins with
// that step.
//
// [Chain.State] returns the same at any time, also while a step runs, for a condition, an event or
// a debug page.
package finalizer
