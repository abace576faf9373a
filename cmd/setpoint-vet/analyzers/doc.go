// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package analyzers finds mistakes in Reconciles that the compiler accepts. Command setpoint-vet
// runs all analyzers.
//
//   - [ReconcileContext]: a context that is not derived from the Reconcile's.
//   - [StaleObject]: an object that is used again after a write returned a newer one.
//   - [UndeclaredRead]: a read of a handle that the controller does not declare.
//
// A Reconcile is a function with a context that returns a Result and an error, of Setpoint or
// controller-runtime. Its helpers count as parts of it: function literals in it, and functions of
// the same package that it calls by name. Other calls through interfaces and function values are
// not followed. The analyzers report only what is certain from one package, so they miss mistakes
// that need another one.
//
// Stability: experimental.
package analyzers

import "golang.org/x/tools/go/analysis"

// All returns all analyzers.
func All() []*analysis.Analyzer {
	return []*analysis.Analyzer{ReconcileContext, StaleObject, UndeclaredRead}
}
