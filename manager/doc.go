// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package manager starts, stops and watches over one process: its cache, its leader election, its controllers and whatever
// else has to run.
//
// # Usage
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
// Run starts in this order and stops in the reverse:
//
//	servers      Options.Health and Options.Server listen and answer
//	cache        informers list and watch
//	everywhere   AddEverywhere's functions, and each controller's Warm: on every replica
//	leader       AddLeaderOnly's functions, and each controller's Lead: on the leader, or at once without leader election
//
// A process has as many Leases as it likes: what is added leads under that of Options.LeaderElection, or under one that
// [Manager.Lease] has made. On a stop, controllers take no new key; running Reconciles go on, under a Lease that is still renewed,
// until the grace time is over, and then their context ends. The Lease is released when they have returned. Servers answer until all
// else has stopped; requests under way then have what is left of the grace time. The failure of one function stops all. A term that is
// lost stops only what runs under that Lease, which starts again in the next term. Package server describes what the servers
// allow their clients.
//
// # Guarantees
//
// L8: a replica campaigns for a Lease when something leads under it, and each controller that does is warm: each of its sources
// synced, or in trouble that the log names. After two minutes it campaigns all the same, which the log and
// [hook.LeaderElection].Cold tell.
//
// M1: Run returns nil only when every goroutine that it started has returned; otherwise the error names those that have not,
// with their stacks. Idle connections are closed, and none to its servers is open. M2: start in stages, stop in reverse: nothing is
// asked to stop before what stands below it in the table has returned or is overdue. M3: when Run's context ends, in whatever phase,
// with caches that never sync and an API server that refuses connections too, Run ends within the grace time and 3 more seconds. Clients that send or read slowly, or not at all, hold it up by less than a second. M4:
// every error carries the name of what failed; a panic is one, with its stack. M5: no globals, no init, no os.Exit, no flags: two
// managers in one process do not meet. M6: controllers and functions can be added at any time before Run returns, and
// controllers removed. (A function that is to stop earlier than the manager has to return by itself.) M7: Idle returns nil only
// when there was a moment at which the controllers had nothing left to do: see there.
//
// # Concurrency
//
// All methods are safe for concurrent use, and may be called by what the manager runs. New starts nothing.
package manager
