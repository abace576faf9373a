// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package rbac describes the rights that a program needs and uses, as rules of a Role.
//
// At the start, a manager reviews the rights that its parts need ([Needer]), with a
// SelfSubjectAccessReview for each verb. It logs the missing ones once, with a Role that grants
// them. So a standby also finds out what it will lack as a leader. [Report] has the state at any
// time; package debug serves it at /debug/rbac, and `kubectl setpoint rbac` prints Roles from it.
//
// # What is needed
//
//   - list and watch of each kind with a handle, in the namespaces and with the names of its scope
//   - the verbs on the Leases of package leaderelection and package shard
//   - create and patch of events.k8s.io, for a recorder of events.For
//   - reviews of tokens and of access, for server.Authorize
//   - what package webhook does with its Secret and its registrations
//   - update of the owner's subresource finalizers, for handler.Owner: the API server wants it for
//     owner references with blockOwnerDeletion, if it enforces
//     OwnerReferencesPermissionEnforcement
//
// Writes of a Reconcile are not declared, nor are adopted informers and recorders of events.New.
//
// # What is used
//
// Each client.Client remembers the verbs and resources of its requests, at most 1000. Each has up
// to 16 namespaces, then all, and up to three names in each. This takes a request about 0.1 µs and
// no allocation (go test -bench Rights ./internal/transport). Refused requests count, too. Requests
// of other clients count only if their configuration is from Client.Config. Discovery and reviews
// of the own rights do not count: every user has these rights.
//
// A request that creates an object by apply or update counts as create, too. So does an apply that
// an authorizer refuses. A refusal by admission or a quota is no missing right.
//
// # Limits
//
// Used rights are from one process, since its start. What it does rarely, it may not have done yet.
// So compare before you replace a Role.
//
// Stability: experimental.
package rbac
