// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package debug serves the state of controllers, informers and shard groups, and the program's
// profiles, over HTTP. It only reads.
//
//	state := http.StripPrefix("/debug/controllers", debug.Controllers(websites))
//	mux.Handle("/debug/controllers/", state)
//	informers := http.StripPrefix("/debug/informers", debug.Informers(mgr.Cache()))
//	mux.Handle("/debug/informers/", informers)
//	shards := http.StripPrefix("/debug/shards", debug.Shards(mgr.Group()))
//	mux.Handle("/debug/shards/", shards)
//	mux.Handle("/debug/pprof/", http.StripPrefix("/debug/pprof", debug.Profiles()))
//
// The state contains object names and error texts: serve it only to operators. See also
// [AddProfiles].
package debug
