// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package hook is what can be observed in Setpoint: plain structs of functions, one struct for each package that reports.
// A nil struct, or a nil function in one, is off and costs a comparison.
//
// Hooks are called synchronously, never under a lock, by whichever goroutine the event happens on: many at once. They should
// return quickly and must not change what they are given. They must not panic: of most, that ends the process. With joins those of
// several observers, such as package metrics and a program's own; what packages write to the log they write in any case.
//
// What comes and goes, such as a queue or a controller, says so (Opened and Closed, Started and Stopped), so that an observer can
// forget it.
package hook
