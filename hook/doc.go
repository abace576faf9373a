// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package hook declares the events of Setpoint, and how a program observes them.
//
//	slow := hook.On(func(s *hook.Slow) { alert(s.Controller, s.Key, s.Took) })
//	mgr := manager.New(cfg, manager.Options{Name: "website", Hook: slow})
//
// A manager takes one [Hook] and passes it to everything that it runs. [Join] combines several. A
// nil Hook is off and costs a comparison. Packages log the same with and without a Hook.
//
// # Rules for an observer
//
//   - It is called synchronously, on the goroutine of the event, never under a lock of Setpoint, by
//     many goroutines at the same time.
//   - It should return quickly: the caller waits.
//   - It must not keep the event, which may be used again: copy what you need.
//   - It must not change the event, except the Context of [Reconciling].
//   - It must not panic: except for events of queues and shards, a panic may end the process. A
//     queue recovers and counts it, and reports it as [QueuePanicked].
//
// # Fields of events
//
// Controller, Queue, Source, Lease and Webhook are names, and Key is a key as text. ReconcileID is
// the ID in logs. Class is the workqueue.Class, Attempt the number of the delivery since the last
// success. Took, Held, Waited and Delay are durations. Err is nil without an error.
//
// Caches, clients, controllers, queues and sources report their start and their end: Started and
// Stopped, Opened and Closed. At the end, an observer can drop what it has stored about them.
//
// Stability: settling.
package hook
