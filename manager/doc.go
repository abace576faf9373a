// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package manager starts, monitors and stops what runs in one process: its cache, leader election,
// controllers and other functions.
//
//	mgr := manager.New(cfg, manager.Options{Name: "website-operator", Scheme: scheme,
//		LeaderElection: &leaderelection.Options{Lease: "website-operator"}})
//	websites := cache.For[*v1alpha1.Website](mgr.Cache())
//	c := controller.New("website", &reconciler{…}, controller.Options{})
//	c.Watch(source.Kind(websites, handler.Self()))
//	mgr.Add(c)
//	err := mgr.Run(ctx) // ctx ends on SIGTERM: signal.NotifyContext
//
// # Start and stop
//
// Run starts these stages from top to bottom and stops them from bottom to top:
//
//	servers      servers of package server, debug and webhook listen and answer
//	events       recorders of Kubernetes events send
//	cache        informers list and watch, of all clusters
//	everywhere   on every replica: functions of AddEverywhere, and each controller's Warm
//	leader       on the leader: functions of AddLeaderOnly, and each controller's Lead
//	             (on every replica without leader election, and for controllers of
//	             AddControllerEverywhere)
//
// At a stop, controllers take no new key. Running Reconciles continue until the grace time ends,
// and the Lease is still renewed. Then their contexts end. The Lease is released after all
// Reconciles have returned and their events are sent. Servers answer until everything else has
// stopped; requests in flight then have the rest of the grace time. Package server describes the
// limits for clients.
//
// The log has "started" with the versions of the program and of this module, the API server's
// address and version, and the Lease; "watching" with each controller's sources; "ready";
// leadership; "stopping"; and last "stopped", with the cause and how long Run took. For the API
// server's version, Run makes one request for /version. Nothing waits for the answer.
//
// If one function fails, all stages stop. If a term is lost, only the controllers' Lead and the
// functions under its Lease stop, and start again in the next term. A process may have several
// Leases: see [Manager.AddLease].
//
// # Shards
//
// With shard.Options as LeaderElection no replica leads. All of them are members of a [Group] that
// divides the keys: see package shard. The stage leader then runs on each member. At a stop, a
// member finishes its running Reconciles and gives up its slots; another member continues with
// them. Then it leaves the group. The grace time counts from the stop. A controller of another
// [Manager.AddLease], or of AddControllerEverywhere, keeps all keys.
//
// # Readiness
//
// /readyz fails until a replica can take over: its controllers are synced, and it has acquired the
// Lease or seen another replica hold it. In a Group it must be a member, or wait for other
// processes that must end first. A replica without work under a Lease needs no answer for it.
// Later, trouble with the Lease is only a remark, because all replicas may have it at once, and
// would get no requests for their webhooks. But /readyz fails while a request for the Lease has not
// returned in its time, and /livez fails some time later: see package leaderelection.
//
// # Several clusters
//
// [Manager.AddCluster] adds a further cluster, with a client and a cache of its own. Controllers
// watch, read and write all clusters in the same way. The Lease of Options.LeaderElection decides
// about all of them, and may be in any cluster: see leaderelection.Options.Config.
//
// # Guarantees
//
// They cover all clusters of the manager.
//
//   - L8: A replica campaigns when its controllers are warm, or after 2 minutes. Details: a
//     controller is warm when every source is synced, or has a problem that the log names. After
//     two minutes, the log and [hook.LeaseUnsynced] report that the replica campaigns anyway. It
//     does not campaign for a Lease without controllers and functions. For a controller with
//     RequireKinds it waits without a limit.
//   - M1: [Manager.Run] returns nil only when all its goroutines have returned. Otherwise the
//     error names each one with its stack, also requests that ignore their contexts. Details: the
//     requests are those for a Lease. Idle client connections are closed, and no connection to
//     its servers is open.
//   - M2: Stages start in order and stop in reverse. Details: a stage is asked to stop when the
//     stages below it have returned or are overdue.
//   - M3: A stop ends [Manager.Run] within the grace time (25 s) and 3 s, in any phase. Slow
//     clients delay it by less than 1 s. Details: the time counts from the end of Run's context.
//     This holds even if caches never sync or the API server refuses connections.
//   - M4: Every error names the part that failed. Details: a panic is an error, with its stack.
//   - M5: The library has no global state, init, flags or os.Exit. Two managers in one process do
//     not affect each other.
//   - M6: Controllers and functions can be added at any time before Run returns. Controllers can
//     be removed. Details: a function ends when it returns.
//   - M7: [Manager.Idle] returns nil only if the controllers had nothing left to do at some
//     moment after the call, and no key failed then. Details: a key failed if its last Reconcile
//     did.
//
// # Concurrency
//
// All methods are safe for concurrent use, also by what the manager runs. New starts nothing.
//
// Stability: stable.
package manager
