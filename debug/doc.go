// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package debug serves the state of controllers over HTTP, for a port of your choice. It only
// reads.
//
//	h := http.StripPrefix("/debug/controllers", debug.Controllers(websites))
//	mux.Handle("/debug/controllers/", h)
//
// The state contains object names and error texts: serve it only to operators.
package debug
