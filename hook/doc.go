// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package hook declares what a program can observe in Setpoint: structs of functions, one for each
// package that reports events.
//
//	slow := &hook.Controller{Slow: func(s hook.Slow) { alert(s.Controller, s.Key, s.Took) }}
//	mgr := manager.New(cfg, manager.Options{
//		Name: "website", Hooks: hook.Hooks{Controller: slow},
//	})
//
// A manager takes one [Hooks] and passes it to everything that it runs. A nil struct or a nil
// function is off and costs a comparison. [Hooks.With] combines several observers. Packages log the
// same with and without hooks.
//
// # Rules for a hook
//
//   - It is called synchronously, on the goroutine of the event, never under a lock of Setpoint, by
//     many goroutines at the same time.
//   - It should return quickly: the caller waits.
//   - It must not change its arguments.
//   - It must not panic: except in the functions of [Queue] and [Shards], a panic may end the
//     process.
//
// # Fields of events
//
// Controller, Queue, Source, Lease and Webhook are names, and Key is a key as text. ReconcileID is
// the ID in logs. Class is the workqueue.Class, Attempt the number of the delivery since the last
// success. Took, Held, Waited and Delay are durations. Err is nil without an error.
//
// Caches, controllers, queues and sources report their start and their end: Started and Stopped,
// Opened and Closed. At the end, an observer can drop what it has stored about them.
package hook
