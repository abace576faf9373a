// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package cache keeps local copies of API objects and reads them through typed handles. It builds
// on client-go's informers.
//
//	c := cache.New(client, cache.Options{})      // makes no request
//	websites := cache.For[*v1alpha1.Website](c)  // declares the kind
//	go c.Run(ctx)                                // a manager does this
//	site, err := websites.Get(ctx, key)          // a copy; waits for the initial list
//
// # Handles
//
// Only kinds with a handle are listed and watched. [For] returns a handle for a kind. [ForScope]
// narrows it to names, selectors or namespaces, or keeps only metadata or unstructured objects.
//
// Reads such as [Handle.Get] return copies; those through [Handle.Shared] do not. [Handle.Owned]
// finds objects by owner, [NewIndex] declares an index, [Handle.Subscribe] adds an event handler,
// and [Cache.Get] reads any declared kind. With its context, a Reconcile can read only handles that
// its controller watches or declares; see its Reads.
//
// # Defaults
//
// [Options] has the namespaces, labels, transform and resync of all handles. Cluster-scoped kinds
// ignore the namespaces. For kinds that are not built in, the informers find out before their first
// list.
//
// # What the cache stores
//
// The cache drops managedFields, unless [Scope] keeps them. An Update with an object from the cache
// does not change those at the API server. Built-in kinds are decoded from protobuf, custom
// resources from JSON. The initial list is streamed if the API server supports that.
//
// # Storage
//
// [Scope].Storage selects how objects are stored. Decoded objects are Go objects. Packed objects
// are their bytes from the API server: protobuf for built-in kinds, else JSON. By default, custom
// resources with a Go type and metadata are decoded, and others are packed. A packed handle reads
// the same objects, with other costs:
//
//   - Reads decode instead of copying. Several goroutines decode a long List.
//   - Events need no decoding for handlers and predicates that read only metadata, such as Self,
//     Owner and GenerationChanged. Others share one decoded object.
//   - A [NewIndex] that names fields decodes these when they have changed. Others, and a transform,
//     decode each object when it arrives. A transform also encodes it.
//   - Shared decodes an object again once the garbage collector has freed the last one. Two reads
//     may return different pointers. For loops over many objects, use Decoded.
//   - Package cache/factory reads the same store, which then keeps each object that is read so
//     decoded, next to its bytes.
//   - An object that does not fit its Go type is found when it is first decoded. From then on,
//     State names it. Handlers that read only metadata get its events, others do not.
//
// [Handle.State] shows the storage, the kept bytes and the number of decodes.
//
// # Objects that do not fit their Go type
//
// A CRD's schema may allow an object that the Go type cannot hold. It exists, so no read hides it.
// In both storages:
//
//   - Get returns an [UndecodableError], and not NotFound.
//   - List, All, Owned and indexes return the other objects, and an [UndecodableError] that names
//     those in their selection. A caller who deletes what is unused must not go on then. An index
//     that names fields selects packed objects by these alone, others may be in any selection.
//   - The error ends when the store has a state that fits, or the object is deleted.
//   - Stale returns nil: the cache is current. State and [hook.BrokenObject] name the object.
//
// Decoded storage delivers no event for such a state. The next event of the object has its last
// state that did fit as the old one. Informers and listers of package cache/factory cannot return
// the error: decoded, they have the last state that did fit; packed, they leave the object out.
// Unstructured and metadata handles of the kind have the object.
//
// # Slots
//
// A replica that owns a part of the keys needs only a part of the objects. [Scope].Slots names the
// slots; package shard maps keys to them and divides them among replicas:
//
//	slots := cache.NewSlots(shard.ByKey())
//	websites := cache.ForScope[*v1alpha1.Website](c, cache.Scope{Slots: slots})
//	deploys := cache.ForScope[*appsv1.Deployment](c, cache.Scope{Slots: slots,
//		SlotOwner: websites.GroupVersionKind()}) // live where their Website lives
//
// Objects of other slots are dropped before they are decoded, except for metadata handles. A handle
// without Slots keeps all its objects. The API server sends all objects to every replica.
//
// [Slots].Add makes one list for each informer, beside its watch, so the slots that it has stay
// current. If the list fails, State has the reason and the informer stays Synced. The objects are
// not there all at once: Get waits for the slot of its key, and List may return a part of a slot,
// until [Slots].WaitForSync returns.
//
// # Failures
//
// [Handle.State] describes an informer. An informer recovers without a restart:
//
//   - A watch that breaks resumes at its last version. One without an event or bookmark for 3
//     minutes is compared with the API server, and resumes if that is ahead.
//   - A streamed initial list takes as long as it needs. If other events follow its objects, but no
//     announcement of its end within 30 seconds, State has the reason, and the informer lists in
//     pages from then on.
//   - A list that fails is retried after at most 4 seconds, or after a Retry-After of up to 30
//     seconds; after a 503, only up to 1 second.
//   - A request without an answer is reported after 30 seconds and repeated after 2 minutes. In a
//     further cluster of a manager, the first request is small, and reported after 3 seconds.
//   - A kind that is not served is looked up every 4 seconds, once for all informers of its
//     group-version. If its CRD is removed, the last known state stays readable. The CRD may return
//     with another plural or scope.
//   - A revoked right is noticed when the watch ends, after at most 10 minutes.
//   - An object that does not fit its Go type is an error of the reads that would return it. All
//     other objects stay current.
//
// # Event handlers
//
// An event handler that is busy delays no other, and keeps no history in memory. While one of its
// calls takes a second or more, the cache merges the events of each object that waits: updates
// become one, from the oldest old state to the newest new one, and a name that returns is still a
// delete and an add. At most eight events of an object wait at any time. A handler that keeps up
// sees each event. This holds for [Handle.Subscribe], for handlers of package cache/factory, and
// for subscriptions of adopted informers. It does not hold for handlers that the program adds to an
// adopted informer itself: client-go keeps every event for them.
//
// # A restored API server
//
// After a restore from a backup, or behind another cluster's address, versions and objects are
// other ones, without events. An informer compares itself with the API server in these cases:
//
//   - Its watch has ended before its time limit: at once, or 10 seconds after the last comparison.
//     If the API server does not answer, the informer asks again after 10 seconds, and then less
//     often, down to once in each QuietLimit.
//   - Its watch was quiet for [Options].QuietLimit.
//   - An event has a lower version than one before: after a minute.
//   - The answer to a Reconcile's write has a lower version than was known before: within 3
//     seconds.
//   - A key waits for its own write, and the watch has not reached it for 10 seconds.
//   - A list has a lower version than was known before.
//
// The informer reads the object of its newest known change, without a resourceVersion. A lower
// version, or another history of the object, counts if a second read confirms it 3 seconds later:
// a replica behind a load balancer may lag. Then all informers of the cache list again, spread over
// 10 seconds. Until then each is Failing, so Stale names the problem. [hook.Restored] is sent
// once. Keys then no longer wait for writes from before the restore.
//
// If the versions have passed the watch's version, and the newest known change is not undone, the
// comparison shows nothing. The informer then relies on another informer of the cache, or on the
// API server, which refuses versions from before its start (410). An adopted informer cannot be
// made to list again: State is Failing until the host program replaces it.
//
// # client-go informers
//
// Package cache/factory has the cache's informers, as a client-go SharedInformerFactory. [Adopt]
// makes a handle from an informer of the program:
//
//	pods := cache.Adopt[*corev1.Pod](c, factory.Core().V1().Pods().Informer(), cache.AdoptOptions{})
//
// A program without a cache passes nil.
//
// A unit test needs no server: pass a fake clientset and a cache without a [Backend] to
// cache/factory, and adopt its informers. handler.Owner then needs [AdoptOptions].Scope.
//
// # Read-your-writes
//
// A controller waits until its own writes appear in the caches that it declares. An informer keeps
// the objects in its scope, by namespace or name, of the same resource and API server, in any
// version and form. It shows a write as follows:
//
//   - A create or change: the store has reached the written version, or has the object at that
//     version or later. Another object of that name at a later version also counts.
//   - A deletion: the store does not have the object's UID, and has reached the version of the
//     deletion, if that is known. If the request may only have set a deletion timestamp, the
//     timestamp suffices.
//   - A write of an object that its selectors exclude: the store does not have the object.
//     Selectors are evaluated on the written object. If that is unknown, only the store's version
//     counts, which bookmarks advance about every minute.
//
// A controller with two informers of a resource also waits until both show the events of one (see
// package controller).
//
// An informer is also behind during its initial list, which may come from an API server that lags,
// and while it fails.
//
// An adopted informer does not report its list options or its API server. The cache assumes that it
// keeps all objects of its kind, at the Backend's API server or, without a Backend, at any. For
// writes that it does not list, the controller waits until its time limit. An [EventSource] without
// a store shows no write, so no key waits for it.
//
// # Guarantees
//
//   - S2: No final state is lost when a watch breaks or expires, or once a restored API server is
//     noticed. An unseen delete arrives as a delete with the last known state. Details: this also
//     holds if the kind is not served for a while. The state comes as client-go's
//     DeletedFinalStateUnknown. So does an object that leaves the scope. Intermediate states may
//     merge, and an object created and deleted within one gap may never be seen. After a restore
//     of the API server this holds from the relist on: see "A restored API server" for its time.
//   - S4: A source or object that cannot be read delays no other. Its state reports the cause.
//     Details: [Handle.State] has the reason.
//   - S5: A kind is synced within 5 s after its CRD appears or returns. While the CRD is gone,
//     the last known state is readable. Details: if a CRD comes and goes more than once in 2
//     minutes, client-go's reflector pauses for up to 30 seconds between lists.
//   - S6: Releasing the last handle stops an informer and frees its watch, goroutines and memory.
//     Details: they are gone soon after.
//   - S7: Each scope has one LIST and one WATCH, for any number of handles and controllers.
//     Details: scopes of several namespaces or names share the informers of those that they have
//     in common.
//   - S9: A read never returns data from a cache that has not synced. It waits, or returns the
//     cause. A stale cache is reported. A read of several objects names those that it leaves out
//     because they do not fit their Go type. Details: a read waits for the initial list, or
//     returns the reason why that fails. If its context ends first, the error names what it
//     waited for. That list has all that the API server stored when it was asked, also if it
//     cannot stream lists. Later reads return the last known state. Stale names a restored API
//     server from its confirmation until the kind is listed again. An informer that has failed is
//     stale until its store has the new list or, if its watch resumes, the events that were
//     missed: those that come within a second, or later without a pause of 100 ms, for 5 s at
//     most. The error for objects that do not fit is an [UndecodableError].
//   - S10: [Handle.CatchUp] returns nil only when everything that the API server had at the call
//     is in the cache and handled. Details: so does [Subscription.CatchUp]. Exception: the first
//     call for an adopted informer does not wait for events that were queued for a handler
//     before.
//   - S11: With [Options].Namespaces, handles without a scope of their own make no request about
//     a namespaced kind outside these namespaces. Details: they have all objects of
//     cluster-scoped kinds.
//   - P7: A cache with slots keeps, decodes and delivers only objects of its slots. Details:
//     [Slots] sets them. The cache also decodes the metadata of others for metadata handles.
//     Adding slots makes one list for each informer, loses no event, and does not interrupt the
//     watch.
//   - F1: Packed and decoded handles return the same objects and errors, and deliver the same
//     events. Exception: if an object does not fit its Go type, handlers of metadata get its
//     events only if it is packed.
//   - F2: A reader owns what it gets, except from [Handle.Shared].
//   - F3: The kept bytes differ from the received object only by managedFields.
//   - F4: The received bytes of an object are freed when it is transformed or replaced: no name,
//     UID or index value keeps them. Details: not even a name or UID that a handler got.
//
// # Concurrency
//
// Everything is safe for concurrent use. Callbacks may change a [Set] and release a handle.
// [Cache.Run] joins the three goroutines of each informer, client-go's, and those that call event
// handlers. Informers stop without waiting for a backoff, except those that constructors made (see
// package cache/factory).
//
// Stability: stable.
package cache
