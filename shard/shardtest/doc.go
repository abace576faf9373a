// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package shardtest tests whether exactly one member of a shard group reconciles each key, and
// whether a [shard.By] always gives a key the same slot.
//
// Start several replicas in one test process, each with a wrapped Reconciler:
//
//	var record shardtest.Recorder[types.NamespacedName]
//	a := newOperator(cfg, record.Reconciler("a", r)) // your manager, with shard.Options
//	b := newOperator(cfg, record.Reconciler("b", r))
//
// Start, stop and cut off replicas. [Recorder.Check] without keys returns an error if two members
// have reconciled a key at the same time. When no slot moves any more, make all keys due once, and
// name them:
//
//	record.Reset()
//	// Change each object, or call RequeueAll of each controller, and wait until all are idle.
//	err := record.Check(keys...)
//
// The error names each key that no member has reconciled, or several have. The causes are:
//
//   - no member: the cache of the key's owner does not have the object, because of its Scope, a
//     Transform or a predicate; or the owner does not run the controller
//   - no member, or several: the functions of [shard.ByFunc] differ, although they have one name
//
// Nothing looks for these mistakes in production.
//
// Stability: experimental.
package shardtest
