// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package debug serves the state of a manager over HTTP: why an object is reconciled or not, the
// failing keys, the state of controllers, informers and shards, and profiles. It only reads.
//
//	debug.Add(mgr, debug.Options{Address: "localhost:6060"})
//
// serves these paths, also for controllers that are added later:
//
//	/debug/why?kind=K&namespace=N&name=X  why an object is reconciled or not: see package why
//	/debug/failing                        the failing keys; see Failing
//	/debug/controllers/                   the controllers' names, as a JSON list
//	/debug/controllers/NAME               the state of one: see controller.Snapshot
//	/debug/informers/                     the informers of all clusters: see hook.InformerState
//	/debug/shards/                        the shard group, if any: see shard.Status
//	/debug/pprof/                         the names of the profiles
//	/debug/pprof/profile?seconds=N        a CPU profile; default: 30 s
//	/debug/pprof/trace?seconds=N          an execution trace; default: 1 s
//	/debug/pprof/NAME?debug=N&gc=1        any other profile, such as heap or goroutine
//	/debug/pprof/cmdline                  the command line
//
// The answers are JSON; profiles are for go tool pprof and go tool trace. The answers have object
// names and error texts, but no content of objects. Profiles show the program's internals and cost
// CPU time. So serve all this only to operators: on a loopback address with [Add], or with
// [Handler] on a server that authorizes its users.
//
// /debug/informers/ counts all objects, and /debug/controllers/NAME copies a whole queue: do not
// poll them.
package debug
