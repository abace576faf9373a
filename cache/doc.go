// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package cache keeps local copies of API objects: informers, shared by everyone who asks for the same kind, and typed
// handles that read from them.
//
// # Usage
//
//	c := cache.New(client, cache.Options{})
//	websites := cache.For[*v1alpha1.Website](c) // declares the kind; the manager's Run, or c.Run, starts its informer
//	site, err := websites.Get(ctx, key)         // a copy; waits for the initial list
//
// A handle is a declaration: what no handle was made for is neither listed nor watched, ever. Underneath are client-go's
// SharedIndexInformers; [Handle.Informer] gives them out to code that knows them.
//
// # Guarantees
//
// S4: an informer that cannot list (its API is missing, it is forbidden, its objects cannot be decoded, the API server
// cannot be reached) delays nobody else, and [Handle.State] says why it fails. It is tried again after 3 seconds at most
// (up to 30, where the API server asks for a longer pause), for as long as it takes: a CRD may be installed, or a right
// granted, later.
//
// S7: one LIST and one WATCH per kind, however many handles.
//
// S2: no final state is lost when a watch breaks, its version is too old, or the kind is not served for a while: what was
// deleted meanwhile comes as a delete with the last known state (client-go's DeletedFinalStateUnknown).
//
// S5: a CRD that appears later is synced within 5 seconds. One that is removed parks its informer, with the last known state
// readable, and is listed anew within 5 seconds of its return, if it does not come and go more than once in two minutes.
//
// S9: a read never answers from an unsynced store: it waits until its context ends, and then says what it waited for.
//
// # Concurrency
//
// Everything is safe for concurrent use. [Cache.Run] starts one goroutine per informer (and client-go more below it) and
// joins them all before it returns. Waiting and backoff happen in our own ListerWatcher, which ends with its context:
// client-go's reflector would sleep up to 30 seconds through a stop.
package cache
