// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizer runs the steps that must precede the deletion of an object, and shows which of
// them hangs.
//
// While an object's metadata names a finalizer, the API server keeps the object and only sets its
// deletionTimestamp. [Add], [Remove] and [Has] work on an object in memory. To write a single
// finalizer, use EnsureFinalizer and RemoveFinalizer of client.Handle.
//
// # Chains
//
// A [Chain] has one finalizer for each of several steps. Call [Chain.Ensure] before you create
// anything that a step cleans up, and [Chain.Finalize] for an object in deletion. Finalize runs the
// steps in the order in which they are listed, and removes each step's finalizer after it. So the
// finalizers in `kubectl get -o yaml` begin with the step that is next.
//
// A step may run again after an error or a crash, so it must succeed if its work is done already. A
// step that waits for another system returns [Waiting]. Finalize then returns a [StepError], as
// after any error, and the next Finalize begins with that step.
//
// [Chain.State] returns what a deletion waits for, for a condition, an event or a debug page.
//
// Stability: stable.
package finalizer
