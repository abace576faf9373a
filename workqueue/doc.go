// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package workqueue is a queue of keys to reconcile. It deduplicates keys, gives each key to one
// worker at a time, and handles delays, backoff, priority classes and fairness among tenants.
//
//	q, err := workqueue.New(workqueue.Options[types.NamespacedName]{
//		Name:    "website",
//		Classes: workqueue.ThreeClasses(),
//		Tenant:  func(k types.NamespacedName) string { return k.Namespace },
//	})
//
//	q.AddWith(key, workqueue.AddOptions{
//		Class:  workqueue.Background,
//		Reason: workqueue.Reason{Source: "pods", Event: "Create"},
//	})
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
// With the zero [Options] it is a plain FIFO queue. [Queue.Interface] returns it as
// client-go's TypedRateLimitingInterface.
//
// # States
//
// A delivery begins when Get takes the key, and ends when the worker settles the [Item]. In
// between, the key is held. A key that was given up is idle until its next add.
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
// # Classes
//
// Classes share the deliveries by weight. Of several adds before a delivery, the highest class
// counts. Later deliveries:
//
//	what happened                    class of the next delivery
//	Done                             the class of the next add
//	Retry, After, AddRateLimited     the class of this delivery or Item.InClass, in the retry lane
//	GiveUp                           the class of the next add
//	Park or Release                  the class and lane of this delivery
//	RequeueNow                       Interactive
//
// If Options.Classes is set, each class has a lane for adds and a lane for retries (Retry, After
// and AddRateLimited). While adds are ready, at most every fifth delivery of the class is a retry.
// If a key waits for a retry or is ready for one, an add in its class or a higher one moves it to
// the lane for adds.
//
// # Guarantees
//
//   - W1: At most one worker holds a key.
//   - W2: Any number of adds before a key is taken cause one delivery.
//   - W3: Adds while a key is held cause exactly one more delivery after it is settled. The
//     exception: the key failed and all adds are its own, or perhaps its own: then it comes
//     later. Details: after Retry and GiveUp, none if every such add is the key's own
//     (Options.Own), or one later if an add is perhaps its own. After Park and Release, the key
//     is delivered again anyway.
//   - W4: Of several due times that adds set, the earliest counts. A delivery cancels only the
//     timer that the key's own settle set. Details: adds set due times with AddOptions.After,
//     and deliveries before the earliest do not cancel it. Any delivery cancels the timer of the
//     key's own Retry or After. Through [Queue.Interface], Add never cancels AddAfter, as in
//     client-go.
//   - W5: Within a class and tenant, keys leave in the order in which they became ready. A queued
//     key keeps its highest class. Details: each lane and tenant has its own order. Equal due
//     times keep the order in which they were set. A key that moves to a higher lane goes to its
//     end.
//   - W6: No key starves: a ready key is taken after at most F others, where F follows from its
//     position, the weights and the tenants. Details: see below for F. It counts while deliveries
//     go on. A move to a higher lane restarts the count, at most 15 times. Age does not raise a
//     key.
//   - W7: Two backlogged tenants i and j of a class share by weight: |nᵢ/wᵢ − nⱼ/wⱼ| ≤ 1/wᵢ +
//     1/wⱼ deliveries. Details: this holds for an interval throughout which both have ready keys.
//     In it, they get nᵢ and nⱼ deliveries. (Start-time fair queueing: Goyal, Vin and Cheng,
//     1996.)
//   - W8: Shutdown is idempotent. Drain returns when no key is ready or held. Other keys are
//     dropped and counted. Details: ShutDown and Drain are safe for concurrent use. The other
//     keys are the waiting, parked and paused ones.
//   - W9: Settling a key twice, or a key that is not held, is reported and never duplicates the
//     key. Details: the reports are ErrNotHeld and hook.QueueMisused.
//   - W10: The queue starts no goroutine. Details: neither New nor any method does.
//   - W11: A snapshot shows each key at some moment during the call, and none that stays is
//     missing or twice. Details: a key stays if the queue knows it throughout the call.
//   - W12: [Queue.Quiet] returns at a moment when no work is under way, and not before. It does
//     not poll.
//
// The bound of W6:
//
//	T = p − 1 + Σj (⌈p·wj/w⌉ + 1)        others of its lane, and
//	F = T + ΣD (⌈(T+1)·WD/W⌉ + 1)        others in all
//
//	p   the key's position among its tenant's keys in the lane, from 1
//	w   the weight of its tenant
//	wj  the weight of j, another tenant of the lane with ready keys during the wait
//	W   the weight of its lane: that of the class for adds, a quarter of it for retries
//	WD  the weight of D, another lane with ready keys during the wait
//
// Example: with ThreeClasses and one tenant, the only added key of class Normal is taken after at
// most 13 others.
//
// # Concurrency
//
// All methods may be called from any goroutine. One lock guards all state. The queue never holds it
// while it calls your functions (observers, Tenant, Backoff and so on).
//
// Goroutines in Get share one timer, set to the earliest due time. While none is in Get, due keys
// become ready in the next call.
//
// # Bad input
//
//   - A zero or negative delay means none. A delay that exceeds the range of a time is cut.
//   - A key that is not equal to itself (a NaN) or not comparable (an interface with a slice) is
//     dropped, counted and reported.
//   - A panic of your function is recovered, counted (Snapshot.Panics) and reported
//     (hook.QueuePanicked). The result is tenant "", weight 1, no delay, or false.
//   - Options.Validate refuses weights of zero, NaN or infinity. From TenantWeight they count as 1.
//   - An add after ShutDown is dropped and counted. For settles, see [Item].
//
// # Memory
//
// The queue forgets a key without a queued delivery, timer or failures. When it becomes empty after
// a peak, it frees the memory.
//
// # Testing
//
// All times come from package time, so a testing/synctest bubble that includes the call of New
// controls them.
//
// Stability: stable.
package workqueue
