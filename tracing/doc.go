// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package tracing makes OpenTelemetry spans of Reconciles and of their requests. It is a module of
// its own, so programs without it do not depend on OpenTelemetry.
//
//	cfg.Wrap(tracing.Requests(nil))
//	mgr := manager.New(cfg, manager.Options{Name: "website", Hook: tracing.Reconciles(nil)})
//
// A Reconcile's span is the root of its own trace. It has links to the spans that changed the
// objects which the Reconcile is about, as KEP-5915 proposes: they are in the annotation
// tracing.k8s.io/traceparent of these objects. client.TraceParent writes it into new ones:
//
//	trace := client.TraceParent(tracing.TraceParent(ctx))
//	_, _, err := client.CreateOrUpdate(ctx, r.deployments, desired, mutate, trace)
//
// The attributes of a Reconcile's span are:
//
//   - setpoint.controller and setpoint.key, and k8s.namespace.name if the key has a namespace
//   - setpoint.reconcile_id, as in the log, and setpoint.attempt, which is 1 after a success
//   - setpoint.queue_wait: for how many seconds the key was ready, if the queue knows
//   - setpoint.outcome, a hook.Outcome. After a failure, the span has an error status, and
//     error.type is a why.Reason.
//   - setpoint.timed_out and setpoint.gave_up, if true
//
// A request's span has the attributes of otelhttp, and k8s.verb, k8s.api.group, k8s.resource,
// k8s.subresource, k8s.namespace.name and k8s.object.name, unless empty.
//
// Stability: experimental.
package tracing
