// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package manager starts, stops and monitors one process: its cache, its leader election, its
// controllers and its other functions.
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
//	leader       AddLeaderOnly's functions, and each controller's Lead: on the leader, or at once
//	             without leader election
//
// A process may have several Leases: what is added leads under that of Options.LeaderElection, or
// under one of [Manager.Lease]. At a stop, controllers take no new key. Running Reconciles continue
// under a Lease that is still renewed, until the grace time is over; then their context ends. The
// Lease is released when they have returned. Servers answer until all else has stopped; requests
// under way then have the rest of the grace time. The failure of one function stops all. A lost
// term stops only what runs under that Lease, which starts again in the next term. Package server
// describes the limits for clients.
//
// # Guarantees
//
// L8: a replica campaigns for a Lease when something leads under it, and each controller that does
// is warm: each of its sources is synced, or in trouble that the log names. After two minutes it
// campaigns without that; the log and [hook.LeaderElection].Cold report it.
//
// M1: Run returns nil only when every goroutine that it started has returned; otherwise the error
// names those that have not, with their stacks. Idle connections are closed, and no connection to
// its servers is open.
//
// M2: start in stages, stop in reverse: a stage is asked to stop when those below it in the table
// have returned or are overdue.
//
// M3: when Run's context ends, in whatever phase, also with caches that never sync and an API
// server that refuses connections, Run ends within the grace time and 3 more seconds. Clients that
// send or read slowly, or not at all, delay it by less than a second.
//
// M4: every error carries the name of what failed; a panic is an error, with its stack.
//
// M5: no globals, no init, no os.Exit, no flags: two managers in one process do not meet.
//
// M6: controllers and functions can be added at any time before Run returns, and controllers
// removed. (A function that should stop earlier than the manager returns by itself.)
//
// M7: Idle returns nil only when there was a moment at which the controllers had nothing left to
// do: see there.
//
// # Concurrency
//
// All methods are safe for concurrent use, and may be called by what the manager runs. New starts
// nothing.
package manager
