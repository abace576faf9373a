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
// With the zero [Options] it is a plain FIFO queue. [Queue.Interface] returns a view of it with the
// methods of client-go's TypedRateLimitingInterface.
//
// # States
//
// A delivery begins when Get takes the key and ends when the worker settles the [Item]. In between,
// the key is held.
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
// A paused key is in a state of its own until Resume.
//
// # Classes
//
// Each [Class] has a weight and gets a matching share of the deliveries. If a key is added several
// times before it is taken, the highest class counts. When it comes back by itself, it keeps its
// class, or a higher one that was added since:
//
//	what happened                    class of the next delivery
//	Done                             the class of the next add
//	Retry, After, AddRateLimited     as taken, in the retry lane
//	Park, then Wake or expired       as taken, in the lane that it was taken from
//	Release                          as taken, in the lane that it was taken from
//	Pause and Resume                 unchanged
//	RequeueNow                       Interactive
//
// If Options.Classes is set, each class has two lanes: one for adds, and one for retries (Retry,
// After and AddRateLimited). While adds are ready, at most every fifth delivery of the class is a
// retry. Otherwise retries use the whole share. If a waiting or ready retry is added in its class
// or a higher one, it moves to the lane for adds.
//
// # Guarantees
//
// W1. At most one worker holds a key.
//
// W2. Any number of adds before a key is taken cause one delivery.
//
// W3. Adds while a key is held cause exactly one more delivery after the settle. They cause none if
// the worker calls Retry and every such add is the key's own (Options.Own), and none besides the
// redelivery after Park or Release.
//
// W4. Of several due times from AddOptions.After, the earliest counts, and other deliveries do not
// cancel it. Any delivery cancels the timer of the key's own Retry or After. In [RateLimiting], Add
// never cancels AddAfter, as in client-go.
//
// W5. Keys of one lane and tenant leave in the order in which they became ready. Keys with the same
// due time leave in the order in which the due times were set. A key's class follows the table
// above. A key that is raised to a higher lane goes to its end.
//
// W6. No key starves: during continuous deliveries, at most F other keys are taken before a ready
// key. Let the key be the p-th of its tenant. The tenant has weight w. The lane has weight W: the
// weight of the class for adds, a quarter of it for retries. j runs over the other tenants with
// ready keys in the lane, and D over the other lanes with ready keys, at any time during the wait.
// Their weights are wj and WD. Then
//
//	T = p − 1 + Σj (⌈p·wj/w⌉ + 1)        others of its lane, and
//	F = T + ΣD (⌈(T+1)·WD/W⌉ + 1)        others in all.
//
// A raise restarts the count; a key is raised at most 15 times. Age does not raise a key. Example:
// with ThreeClasses and one tenant, the only added key of class Normal is taken after at most 13
// others, however many retries, resyncs and interactive keys are ready.
//
// W7. Let tenants i and j of one class both have ready keys throughout an interval with ni and nj
// deliveries. Then |ni/wi − nj/wj| ≤ 1/wi + 1/wj. (Start-time fair queueing: Goyal, Vin and Cheng,
// 1996.)
//
// W8. ShutDown and Drain are idempotent and safe for concurrent use. Drain returns when no key is
// ready or held. Waiting, parked and paused keys are dropped and counted.
//
// W9. A second settle, or a settle of a key that is not held, is reported (ErrNotHeld and
// hook.Queue.Misused) and never duplicates a key.
//
// W10. Neither New nor any method starts a goroutine.
//
// W11. A Snapshot is consistent: it shows all keys at one moment.
//
// W12. Quiet returns once there was a moment without work in progress, and not before.
//
// # Concurrency
//
// All methods of Queue may be called from any goroutine. One lock guards all state. The queue never
// holds it while it calls your functions (hooks, Tenant, Backoff and so on).
//
// The goroutines in Get share one timer, set to the earliest due time. While no goroutine is in
// Get, the timer is off: the next call makes the due keys ready, in the order of their due times.
//
// # Bad input
//
//   - A zero or negative delay means none. A huge delay is cut to what a time can hold.
//   - A key that is not equal to itself (it contains a NaN), or that cannot be compared (an
//     interface that contains a slice), is dropped, counted and reported.
//   - A function of yours that panics is recovered, counted and reported. It counts as having
//     returned its zero value: tenant "", weight 1, no delay.
//   - Options.Validate refuses weights of zero, NaN or infinity. From TenantWeight they count as 1.
//   - Adds after ShutDown are dropped and counted. For settling twice or after ShutDown, see
//     [Item].
//
// # Memory
//
// The queue forgets a key without a queued delivery, timer or failure, and reuses its memory. When
// the queue becomes empty after a peak, it frees the memory.
//
// # Testing
//
// All times come from package time. In a testing/synctest bubble, with New called inside it, tests
// are fast and do not depend on the speed of the machine.
package workqueue
