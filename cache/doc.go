// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package cache keeps local copies of API objects: informers, shared by all handles of the same scope,
// and typed handles that read from them.
//
// # Usage
//
//	c := cache.New(client, cache.Options{})
//	websites := cache.For[*v1alpha1.Website](c) // declares the kind; the manager's Run, or c.Run, starts its informer
//	site, err := websites.Get(ctx, key)         // a copy; waits for the initial list
//
// A handle is a declaration: only kinds with a handle are listed and watched. [ForScope] narrows it:
//
//	tls := cache.ForScope[*corev1.Secret](c, cache.Scope{Names: cache.NewSet(key)})            // this Secret, no others
//	pods := cache.ForScope[*corev1.Pod](c, cache.Scope{Labels: selector, Namespaces: tenants}) // tenants may change at any time
//	jobs := cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: jobKind})       // metadata only
//
// Reads return copies; [Handle.Shared] is a view whose reads do not. [NewIndex] declares an index,
// [Handle.Owned] is one that is always there. [Handle.State] and [Cache.States] report where each
// informer stands, [Cache.Changed] when that changes. [Handle.Release] gives an informer back.
//
// # Informers of client-go
//
// Underneath are client-go's SharedIndexInformers; [Handle.Informer] returns them. Package
// cache/factory is a client-go SharedInformerFactory over the cache. [Adopt] makes a handle of an
// informer that the host program runs:
//
//	pods := cache.Adopt[*corev1.Pod](c, factory.Core().V1().Pods().Informer(), cache.AdoptOptions{})
//
// The host starts its factory after that, and stops it. Release takes off our event handlers and
// nothing else.
//
// A unit test needs no server: give cache/factory a cache without a Backend and a fake clientset, and
// adopt its informers. No API server tells there whether a kind lives in namespaces, so a handle that
// handler.Owner is given needs [AdoptOptions].Scope.
//
// # What is kept
//
// Objects are kept without managedFields, unless [Scope] asks for them. An Update with such an object
// leaves the managedFields at the API server alone. Built-in kinds are read as protobuf, custom ones as
// JSON. The initial list is streamed if the API server can do that. Resyncs are off, unless
// [Scope].Resync is set.
//
// # What a controller waits for
//
// [Declarations.Behind] answers the question of read-your-writes (C6, see package controller): does each
// declared informer that keeps an object show what was written of it? An informer keeps an object if it
// is for the same resource, in whichever API version and form, of the same API server, and the object's
// namespace or name is in its scope. It shows
//
//   - a stored object once its store is at the version that was written, or has the object at it or a
//     later one, or another of that name at a later one;
//   - a deletion once the object of that UID is not in the store, and, if a version is known, the store
//     is past it; where only a mark may have been set, a mark suffices;
//   - what its selectors exclude once the store does not have it. Selectors are evaluated on the object
//     that was written. If that is not known, only the store's version tells, which a bookmark moves on
//     about every minute.
//
// A [Gap] is an informer that is behind, the initial list included: a list may come from an API server
// that lags. [Gap.Notify] tells of its end. If an informer fails, or versions are not numbers, waiting
// is no use, and Behind returns an error instead.
//
// An adopted informer does not report what its list options select, nor which API server it asks. It is
// taken for one of all objects of its kind, at the Backend's API server, else at any. A write outside of
// what it lists is waited for until the bound.
//
// # Guarantees
//
// S2: no final state is lost when a watch breaks, its version is too old, or the kind is not served for a while: what was
// deleted meanwhile comes as a delete with the last known state (client-go's DeletedFinalStateUnknown). So does what leaves a
// scope because its namespace or name was taken out. A watch that breaks, or shows neither event nor bookmark for 3 minutes, goes
// on where it was.
//
// S4: an informer that cannot list (its API is missing, it is forbidden, the API server cannot be reached or does not answer for
// 30 seconds) delays nobody else, and [Handle.State] says why it fails. It is tried again after 4 seconds at most (up to 30,
// where the API server asks for a longer pause), for as long as it takes: a CRD may be installed, or a right granted, later. A
// right that is revoked is noticed when the watch ends, after at most 10 minutes. A request that is never answered is made again
// after two. An object of a custom resource that does not fit its Go type is named in the state and reported; all others are
// kept, and of it the last state that did fit.
//
// S5: a CRD that appears later is synced within 5 seconds; its group-version is asked for every 4 seconds, once for all informers
// that wait for it. One that is removed parks its informer, with the last known state readable, and is listed anew within 5
// seconds of its return, if it does not come and go more than once in two minutes (client-go's reflector pauses for up to 30
// seconds between lists). It may come back with another plural name or scope.
//
// S6: the last release stops an informer: its watch, its goroutines and its memory are gone soon after.
//
// S7: one LIST and one WATCH per scope, however many handles. Scopes of several namespaces or names share what they have in
// common.
//
// S9: a read never answers from an unsynced store: it waits while the initial list is under way, until its context ends, and then
// says what it waited for. Where the list cannot be had, it returns the reason at once. In a Reconcile, what its controller neither
// watches nor declares cannot be read ([Declarations]). Once there was a list, reads answer from
// the last known state, and [Handle.Stale] says if that may be old.
//
// S10: CatchUp ([Handle.CatchUp], [Subscription.CatchUp]) returns nil only when everything that the API server had at the call has
// been handled. One exception: the watch of an adopted informer is not ours. Its first CatchUp does
// not wait for events that were already queued for a handler at the call; later ones do.
//
// # Concurrency
//
// Everything is safe for concurrent use. [Cache.Run] starts three goroutines per informer (and client-go more below them) and joins
// them all before it returns. Waiting and backoff happen in our own ListerWatcher, which ends with its context: client-go's
// reflector would sleep up to 30 seconds through a stop. A [Set] may be changed, and a handle released, from anywhere, callbacks
// included; a [Subscription] must not be closed from its own callback.
package cache
