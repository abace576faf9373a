// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package debug shows what a process is doing, as http.Handlers for a port of the host's choice. It only reads.
//
//	mux.Handle("/debug/controllers/", http.StripPrefix("/debug/controllers", debug.Controllers(websites)))
//
// It shows names of objects and texts of errors: serve it where only operators can read it.
package debug
