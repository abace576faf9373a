// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package workqueue decides which key is next, and when. It is a queue of keys to reconcile: adds of one key merge,
// a key is never with two workers at once, delays and backoff are part of the queue, and it shares deliveries fairly
// among classes of urgency and among tenants.
//
// # Usage
//
//	q, err := workqueue.New(workqueue.Options[types.NamespacedName]{
//		Name:    "website",
//		Classes: workqueue.ThreeClasses(),
//		Tenant:  func(k types.NamespacedName) string { return k.Namespace },
//	})
//
//	q.AddWith(key, workqueue.AddOptions{Class: workqueue.Background, Reason: workqueue.Reason{Source: "pods", Event: "Create"}})
//
//	for {
//		item, ok := q.Get(ctx)
//		if !ok {
//			return
//		}
//		if err := reconcile(item.Key()); err != nil {
//			item.Retry(err)
//		} else {
//			item.Done()
//		}
//	}
//
// With the zero Options it is a plain first-in-first-out queue. Queue.Interface gives it the methods of client-go's
// workqueue.TypedRateLimitingInterface.
//
// # Classes
//
// A key has the class that it was added with: the highest one since it was last taken. A key that
// comes back by itself keeps the class that it was taken with. An add of a higher class raises a
// key, and none lowers it.
//
//	verb                             class of the next delivery
//	Done                             that of the next add
//	Retry, After, AddRateLimited     as taken, in the lane of retries
//	Park (Wake, or expired)          as taken, in the lane that it was taken from
//	Release                          as taken, in the lane that it was taken from
//	Pause and Resume                 unchanged
//	RequeueNow                       Interactive
//
// If Options.Classes is set, each class has a lane for retries beside the one for adds. Retries are
// what Retry, After and AddRateLimited bring back. While adds of a class wait, retries of all keys
// together get at most every fifth delivery of the class. While none wait, retries are not held
// back. An add of a retry that is ready or waits, in its class or a higher one, makes it an add.
//
// # States
//
//	         AddWith{After}                  Get                Done
//	unknown ───────────────▶ waiting ─▶ ready ───▶ held ─────────────▶ forgotten
//	       ╲                          ↗    ▲        │ ╲
//	        ──────────── Add ────────      │        │  ─ Retry, After ─▶ waiting
//	                                       │        │
//	                   Wake, RequeueNow    │        │ Park
//	                             parked ◀──┼────────╯
//	                                       │ Add while held, Release
//
// A paused key is in a state of its own until it is resumed. The verbs are those of Queue and Item.
//
// # Guarantees
//
// W1. A key is held by at most one worker.
//
// W2. Any number of adds before a key is taken give one delivery.
//
// W3. An add while the key is held gives exactly one more delivery after it is settled, unless the
// key failed and every such add is its own (Options.Own), or the key is parked or released instead,
// which delivers it again anyway.
//
// W4. Of several due times set from outside (AddOptions.After) the earliest wins, and it still fires after other deliveries.
// A delivery cancels the timer that the key's own settle (Retry, After) had set. For RateLimiting this means that Add
// never cancels AddAfter, as in client-go.
//
// W5. Within one lane and tenant, keys leave in the order in which they became ready; keys of one
// due time in the order in which they were given it. While queued, a key keeps the highest class
// added since it was last taken. A key that comes back by itself (Retry, After, Park, Release)
// keeps the class that it was taken with, or a higher one that was added since; after Done the next
// add decides. A key that is raised to a higher lane while it is queued counts as having become
// ready there then: it goes to the end, so that raising one key never puts off those that were
// there before.
//
// W6. No key starves: while deliveries go on, a ready key is taken after at most F others. Let the
// key be the p-th of its tenant, which has weight w, in its lane, which has weight W: that of its
// class for adds, a quarter of it for retries. Let j run over the other tenants that have ready
// keys in this lane while the key waits, and D over the other lanes that have ready keys while it
// waits. Then
//
//	T = p − 1 + Σj (⌈p·wj/w⌉ + 1)        others of its lane, and
//	F = T + ΣD (⌈(T+1)·WD/W⌉ + 1)        others in all.
//
// A raise begins the count anew; there are at most 15 of them. Nothing is promoted by age. With
// ThreeClasses and one tenant, the only change of class Normal is taken after at most 13 others,
// however many retries, resyncs and interactive keys are ready.
//
// W7. For tenants i and j of one class that both have ready keys during the whole of an interval in which they were
// delivered ni and nj times: |ni/wi − nj/wj| ≤ 1/wi + 1/wj. (Start-time fair queueing: Goyal, Vin and Cheng, 1996.)
//
// W8. ShutDown and Drain are idempotent and safe from many goroutines. Drain returns when no key is ready or held.
// Keys that wait, are parked or are paused are dropped and counted.
//
// W9. Settling twice, or settling a key that is not held, is reported (ErrNotHeld, hook.Queue.Misused) and never
// duplicates a key.
//
// W10. The queue needs no goroutine and leaves none: neither the constructor nor any method starts one.
//
// W11. A snapshot (per key: state, class, tenant, due time, attempts, reasons) is consistent: it is one moment.
//
// W12. Quiet returns when there is a moment at which nothing is under way, and not before.
//
// # Concurrency
//
// All of Queue may be used by many goroutines. One lock guards all state; the host's code (hooks, Tenant, Backoff, ...)
// is never called under it. A goroutine that waits in Get waits for a token that an adding goroutine sends it, for the
// end of its context, or for the one timer that all of them share, set to the earliest due time. While nobody waits,
// nothing is timed: what has become due is found by the next call, in its proper order.
//
// # Bad input
//
// A zero or negative delay is none; a huge one is cut to what a time can hold. Settling twice, settling the zero Item
// and settling after ShutDown are described at Item, adding after ShutDown at Queue.Add. Weights of zero, NaN or
// infinity are refused by Options.Validate; from TenantWeight they count as 1. A func of the host that panics is
// recovered, counted and reported, and taken to have returned its zero value (tenant "", weight 1, no delay). A key
// that is not equal to itself (a NaN inside), or cannot be compared (a slice inside an interface), is dropped, counted
// and reported: no map could ever find it again.
//
// # Memory
//
// A key that holds nothing any more (not queued, no timer, no failure) is forgotten. What it used is used again; when
// the queue becomes empty after it held far more keys than of late, it is given back.
//
// # Testing
//
// All time goes through package time, so that a test in a testing/synctest bubble, with the queue made inside it,
// neither waits nor depends on the machine's speed.
package workqueue
