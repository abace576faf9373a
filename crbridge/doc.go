// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package crbridge runs controllers that were written for controller-runtime on Setpoint. It
// has the names of controller-runtime's root package, so a file moves with one import:
//
//	import ctrl "github.com/setpoint-dev/setpoint/crbridge" // was "sigs.k8s.io/controller-runtime"
//
// # Level a: the manager
//
// With the import changed in main.go, [NewManager] returns a manager of Setpoint behind the
// interface of controller-runtime's. Reconcilers, SetupWithManager and the builder stay as they
// are. Each controller keeps controller-runtime's queue and workers. It gains:
//
//   - the Lease: a graceful hand-over, and writes after a lost Lease are refused;
//   - a stop in two phases: running Reconciles may finish, while the Lease is still renewed;
//   - the cache: built-in kinds stored as bytes, one informer for each kind and form, trouble with
//     an informer in log, metrics and /readyz;
//   - sources run on every replica, so a new leader has its keys already;
//   - webhooks: the server of package server calls their handlers. Requests that run at a stop are
//     answered, and it reads new certificates at once.
//
// # Level b: the controller
//
// With the import changed in the file of a controller, [NewControllerManagedBy] returns a builder
// with the same methods that makes a controller of Setpoint. It gains all of package controller:
// a Reconcile sees its key's previous writes, failing and waiting keys are explained by package
// why, a change does not wait behind other keys, hot loops and fights are slowed down.
//
// Reads of a Reconcile are cached, as there. A kind that the controller does not watch is declared
// when a Reconcile reads it for the first time, which [Settings].RefuseUndeclared makes an error;
// [Builder.Reads] declares it before.
//
// # What differs
//
//   - Options without a counterpart are errors of New or Build, or the log has a line "an option
//     has no counterpart" with what happens instead.
//   - After SIGTERM, running Reconciles have up to GracefulShutdownTimeout, by default 25 seconds.
//     Give the Pod a longer terminationGracePeriodSeconds: kubebuilder's scaffold has 10.
//   - The cache keeps no managedFields, unless [Settings].KeepManagedFields is set. An object that
//     was read with UnsafeDisableDeepCopy may still be a copy. Options of single namespaces must be
//     equal, also in ByObject.
//   - The webhook server speaks HTTP/1.1 only. Its TLSOpts may set GetCertificate, MinVersion,
//     CipherSuites and NextProtos. GetWebhookServer returns another type, whose StartedChecker
//     replaces the one of Options.WebhookServer. Requested during Start for the first time, it
//     ends the contexts of running requests at a stop.
//   - A lost Lease ends the process only if a controller of level a, or another Runnable that needs
//     the Lease, is under it. The Lease gets no Event "became leader".
//   - At level b, a panic is always an error, and a kind that does not sync ends no process: the
//     controller starts without it, the log and /readyz name it, and its reads wait. At level a,
//     the replica does not lead until its kinds are synced.
//   - At level b, a failed Reconcile is logged by package controller as "reconcile failed" with its
//     key, and reconcile IDs are no UUIDs.
//   - Errors that both return have the same types, such as ErrCacheNotStarted, but some have
//     another text.
//
// The tests run controller-runtime's own suites on this package: see
// testdata/suites/exceptions.txt for the specs that do not pass, each with its reason.
//
// Stability: experimental.
package crbridge
