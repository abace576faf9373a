// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package debug serves the state of a manager over HTTP: why an object is reconciled or not, the
// failing keys, the state of controllers, informers and shards, and profiles. By default it only
// reads.
//
//	debug.Add(mgr, debug.Options{Address: "localhost:6060"})
//
// serves these paths, also for controllers that are added later:
//
//	/debug/                               a live page for a browser
//	/debug/why?kind=K&namespace=N&name=X  why an object is reconciled or not: see package why
//	/debug/why?controller=C&key=TEXT      the same about a key, which may name no object
//	/debug/trace?kind=K&namespace=N&name=X
//	                                      the Reconciles of an object's keys, as they end, with
//	                                      values: see Manager.Trace. It needs Options.Values
//	/debug/failing                        the failing keys; see Failing
//	/debug/keys                           the keys in the queues and the failing ones
//	/debug/stream                         numbers for the page, as server-sent events
//	/debug/controllers/                   the controllers' names, as a JSON list
//	/debug/controllers/NAME               the state of one: see controller.Snapshot
//	/debug/informers/                     the informers of all clusters: see hook.InformerState
//	/debug/shards/                        the shard group, if any: see shard.Status
//	/debug/rbac                           the rights that are needed, used and missing: see rbac.Report
//	/debug/pprof/                         the names of the profiles
//	/debug/pprof/profile?seconds=N        a CPU profile; default: 30 s
//	/debug/pprof/trace?seconds=N          an execution trace; default: 1 s
//	/debug/pprof/NAME?debug=N&gc=1        any other profile, such as heap or goroutine
//	/debug/pprof/cmdline                  the command line
//
// The page has the Leases, the controllers, their keys and the informers, and explains why an
// object is reconciled or not. Its numbers change once a second, while its tab is visible. It needs
// no other server. The first 16 pages get updates. A stop does not wait for open pages, and a page
// is authorized again after 10 minutes at most.
//
// The paths below /debug/ that only the page uses may change: /debug/keys, /debug/stream, and the
// page's script and style. /debug/keys returns at most 1000 keys. It takes these parameters:
//
//	controller=NAME  of one controller
//	state=STATE      idle, waiting, ready, held, parked or paused
//	reason=REASON    failing keys with one reason, or any
//	q=TEXT           keys that contain a text, in any case
//	sort=ORDER       age (the default), attempts, duration, reason or key
//
// /debug/trace has a line of JSON for each Reconcile (controller.Traced). It ends after 10 minutes,
// or after the parameter seconds=N. At most 4 traces of a controller run at once.
//
// The other answers are JSON; profiles are for go tool pprof and go tool trace. The answers have
// object names and error texts, but no content of objects, unless Options.Values is set: then they
// may have the content of all objects that a controller reads or writes, except Secrets. Profiles
// show the program's internals and cost CPU time. So serve all this only to operators: on a
// loopback address with [Add], or with [Handler] on a server that authorizes its users. # Actions
// With Options.Actions, POST requests act on one key, and the page has buttons for them:
// /debug/requeue  makes the key due now: see controller.Controller.Requeue /debug/pause    stops
// its Reconciles /debug/resume   ends such a pause curl --json '{"controller": "website", "key":
// "default/shop"}' localhost:6060/debug/requeue The key is the text of /debug/keys or
// /debug/failing. The answer is {"result": "a sentence"}, or status 409 with a sentence: for a key
// that is unknown, and on a replica that does not reconcile it. Such a pause ends with the term of
// leadership, so also when the process stops. The annotation setpoint.dev/paused of the object
// lasts longer, and needs no option. Each action is a log line of level info, with the key and the
// user of server.Authorize, or else "debug page". A web page of another site cannot act: its
// requests are refused. # Costs
//
// /debug/keys walks over all keys, which takes about two seconds for a million failing keys.
// /debug/informers/ counts all objects, and /debug/controllers/NAME copies a whole queue: do not
// poll them.
//
// Stability: experimental.
package debug
