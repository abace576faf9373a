// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller runs reconcilers. Sources fill a queue with keys. Workers take keys, call
// Reconcile, and settle each key by the result.
//
//	c := controller.New("website", &reconciler{…}, controller.Options{Workers: 8})
//	c.Watch(source.Kind(websites, handler.Self(), handler.GenerationChanged))
//	c.Watch(source.Kind(deployments, handler.Owner(websites)))
//	c.Reads(secrets) // read in Reconcile, but not watched
//	mgr.Add(c)
//
// # Phases
//
// [Controller.Warm] runs the sources, on every replica. [Controller.Lead] runs the workers for one
// term of leadership. A manager calls both; without one, call [Controller.Run].
//
// # Results
//
// A Reconcile settles its key in exactly one way:
//
//	returned                      queue verb  meaning
//	Result{}, nil                 Done        resets the attempts
//	Result{RequeueAfter: d}, nil  After       resets the attempts; due again after d
//	any, err                      Retry       backoff, doubled each time; not before RequeueAfter
//	any, RetryAfter(err, d)       Retry       due again after d
//	any, Stale(ctx)               Park        due again when its caches are current; no failure
//	any, Terminal(err)            Done        logged, not retried
//	any, an undeclared read       Done        as Terminal: a mistake in the program
//	any, err, after ctx ended     Release     unchanged, for the next worker or term
//
// A key that fails during an outage is due when one of the controller's informers recovers, even if
// it failed before the informers noticed. Explicit delays, such as [RetryAfter]'s, still apply.
//
// If an error has a Retry-After of the API server, the key is not retried before, or before one
// minute if the API server asks for more, unless an event ends the backoff. A worker does not wait
// for it: see "The transport" in package client.
//
// # Read your writes
//
// A Reconcile sees the writes of its key's previous Reconcile: the key is parked until every
// informer that the controller watches or Reads shows them. Requests must use the Reconcile's
// context, and a client built from the configuration of a client.Client.
//
//	written                          visible when
//	an object at a version           the store, or the object in it, is at that version or newer
//	a delete, or the last finalizer  the store has no object with that UID
//	a delete that only marks         the store has the object at the version of the mark
//	deletecollection, eviction       the object with that UID is gone or marked
//	any write with a lost answer     the store has what the API server has when it is asked
//	outside an informer's scope      at once; with selectors, if the store does not have the object
//	a kind that is not declared      at once
//
// The key also waits for an informer that fails. After [Options].ReadYourWrites the Reconcile
// starts anyway: [Stale] names the missing writes, and hook.Awaited reports them. The
// next Reconcile waits for them again when the informer has recovered.
//
// An answer is lost if the connection breaks or the API server returns a 5xx. After one second a
// worker lists the metadata of the object, or of its namespace if the name is unknown. Unless the
// list proves that the write was carried out or would fail now, it may still be carried out:
// [Stale] names it until 30 s after the request, or Options.ReadYourWrites if that is less. A list
// proves nothing about a patch without a resourceVersion and about a generateName.
//
// Not covered:
//
//   - Reads in the same Reconcile. Use the object that the write returned.
//   - Writes of other keys, controllers and processes.
//   - client-go's fake clientsets, which have no transport.
//   - Lost answers, if only a host's informers keep the object and no cache has adopted them.
//   - Versions that are not numbers. Stale then names the write.
//
// If another client deletes a new object of the key while a watch is interrupted, there may be no
// event. The key is then reconciled after the relist (Relisted).
//
// A manager's Remove waits until the caches show the controller's writes, so that the controllers
// that follow see them: see [Controller.AwaitWrites].
//
// # Two informers of a resource
//
// A controller may watch the metadata of a kind and read its objects, or watch a selector and read
// everything. The second informer may lag behind the first. So a key also waits until every
// declared informer of that resource that can show the event's object has passed the event's
// version. The limit of the key's own writes applies, and almost the same rules:
//
//   - The wait is about the object of the event, such as a Secret that a handler maps to a Website.
//     Informers of other API servers do not count.
//   - A deletion is visible when the store does not have the object. If the object has only left
//     the watched selector, the store has it at that version or later.
//   - Events that come while the key waits are for its next Reconcile.
//   - A key waits for an informer that was synced and fails. It does not wait for an informer that
//     has never synced, because its reads return an error.
//   - If the limit is over, the key is reconciled once more when the informer shows the event.
//   - It is sometimes unknown whether an informer keeps an object: it has a field selector, and
//     metadata are watched; a deletion may be a change of labels; or the informer is adopted. The
//     wait for such an informer ends after a second.
//
// Of a key's waiting events, the last 32 objects count. Sources without a handle, and versions that
// are not numbers, are not covered. A controller with one informer for each resource has no such
// wait.
//
// # Several clusters
//
// If the sources of a controller are in several clusters, workers start when all sources and
// Readables of one cluster are settled. A key that only sources of another cluster have added is
// parked until all of that cluster are. A key of an event in one cluster does not wait for the
// others, but its reads do. Two kinds of inputs hold all keys: a Readable in a cluster without
// sources, and one without a known API server. With [Options].RequireKinds all keys wait for all
// inputs.
//
// # Takeover
//
// If the previous leader released its term, Lead first waits until the informers show what that
// term wrote and had read. So no Reconcile acts on an older version of an object than one of the
// term before. Each informer must pass the newest version of its resource, and have none of the
// deleted objects.
//
// Reads are not covered for adopted informers, for a resource with several informers, such as one
// for each namespace, and for kinds that are not served. A release also leaves all of them out if
// its text has no room, which a slot has for about 25 resources.
//
// An informer with a selector, a namespace or a name may have no event at that version. Lead then
// lists the metadata of the objects that the informer selects, and waits until the informer shows
// them. It does the same for all informers of a resource if an answer was lost. If objects were
// deleted, the list is made after a second.
//
// After [Options].ReadYourWrites Lead continues, and [Stale] names what is missing. After a crash
// the last writes are unknown, and Lead does not wait. With several clusters, Lead does not wait
// for an informer that has not synced since the start either: reads of it return an error or wait,
// and Stale names the writes.
//
// # Shards
//
// With [Options].Partition, the controller serves the slots that this process owns. It watches all
// objects, and drops events of foreign keys where they are mapped. For each slot that it takes
// over:
//
//  1. It waits until its informers show the former owner's writes, as at a takeover.
//  2. It accepts keys of the slot. Kind sources deliver their objects again, for the
//     keys of these slots only.
//  3. Its Reconciles have the slot's term, so the fence refuses their requests after the slot has
//     been released.
//
// When a slot leaves, its running Reconciles finish, and its other keys are dropped with their
// timers and failures. Pauses and log levels belong to the process and stay.
//
// Deletions are not lost: the next owner reconciles the key of an object that it saw being deleted
// at most a minute ago, of the last 10,000 such keys. The former owner may have reconciled it, too.
//
// Other keys need a source that can deliver them again. An event of a Channel, and a key added to
// [Controller.Queue], has no effect in a process that does not serve the key. A Ticker that yields
// all keys works. Keys that a [shard.Partitioner] cannot map are dropped, and logged once.
//
// # Own writes during a backoff
//
// After an error, events of the key's own writes do not end its backoff, even if they come before
// Reconcile returns. Any other event ends it. After a success, an own write makes the key due.
//
// A write may be a no-op. Then the answer has the version of another client's change, whose event
// must not be lost. So a version is the key's own only if the answer proves it:
//
//	write                                 proof
//	create, an apply that creates         the object is new
//	update or patch with resourceVersion  the answer has another version; in a JSON patch also a test
//	delete, or the last finalizer         the object is gone
//	any, and the event comes late         the caches had the version before the Reconcile began
//
// An update or patch without a resourceVersion has no proof, unless it creates the object. Its
// event ends the backoff at once. If such events have begun attempts since the last event by
// others, the next one waits until one second after the last attempt began, then two, doubling up
// to 17 minutes, unless the key is reconciled before. It wakes a key that gave up in the same way.
// To be sure, set the resourceVersion, with client.OptimisticLock or in an update.
//
// An event that combines changes has no version, as after a failed handler or a relist. It ends the
// backoff. So does the event of a write whose answer was lost and, if [Options].ReadYourWrites is
// negative, an own event that comes after the next attempt has begun.
//
// # Hot loops
//
// A key can make itself due, by its own writes or by a RequeueAfter below 100 ms. After 100 such
// Reconciles in a row, each begun less than 100 ms after the previous one, it is slowed down. Its
// Reconciles then begin at least 10 ms apart, then 20 ms, up to 1 s. The log names the key and the
// cause once. A Reconcile for any other reason begins at once and resets the count.
// [Controller.WaitIdle] and the manager's Idle wait for a slowed key. Writes without a proof count
// as the key's own. If [Options].ReadYourWrites is negative, own writes are not recognized.
//
// # Fights
//
// A key and another writer can overwrite the same field of an object again and again, for example
// two controllers that apply it with force. After 10 Reconciles, each less than a minute after the
// one before, that write an object again because others have changed it, the answers and the
// changes are compared. If both change the same field, the key is slowed down as in a hot loop,
// for events that show only changes of that field, and of the status. The log and [hook.Fight] name
// the key, the fields and the field managers of the others, once. Changes of other fields, and
// events of other objects, are not delayed.
//
// The controller must watch the object, or declare it with Reads, in the Go type of its writes.
// Changes of lists are compared as a whole.
//
// # Guarantees
//
//   - C1: At most one Reconcile runs for a key.
//   - C2: An error requeues the key with backoff. A success resets the backoff.
//   - C3: [Result].RequeueAfter replaces the timer that the controller set before for this key.
//     Details: that is the timer of an earlier Reconcile of the key.
//   - C4: A terminal error is reported and not retried. So is a read that the controller does not
//     declare. Details: the log and the Hook report it. The error of an undeclared read is not
//     terminal if inputs were added or removed while the Reconcile ran.
//   - C5: A panic becomes an error with its stack. Neither the key nor the worker is lost.
//     Details: runtime.Goexit is an error too.
//   - C6: A Reconcile starts only when the declared caches show the writes of the key's previous
//     Reconcile and, with two informers of a resource, its events, up to a limit (30 s). Details:
//     writes are compared per object by UID and version. The events are those that made the key
//     due. The limit is [Options].ReadYourWrites. A write that begins after its Reconcile
//     returned fails with a [ledger.LateWriteError], and is logged once.
//   - C7: After an error, writes that are proven to be the key's own do not shorten its backoff.
//     Changes by others do. A patch without a resourceVersion ends it once, and later at
//     intervals that double.
//   - C8: A stop lets running Reconciles finish within the grace time. An interrupted key is due
//     in the next term and has not failed. Details: a stop takes no new key. After the grace
//     time, the contexts of Reconciles end with a cause. An error after that is no failure. One
//     second later, the log has the stacks of those that still run.
//   - C9: A Reconcile that is over its deadline or stuck is reported with its stack. Details: it
//     is stuck after [Options].SlowAfter. It is reported once.
//   - C10: Every Reconcile has at least one recorded reason. Details: events, the error that it
//     retries (RetryConflict and others), or the queue's own ([workqueue.EventAfter]).
//   - C11: A paused key is not reconciled until all its pauses end. Then it is reconciled once
//     for everything that it missed. Details: the program or an annotation pauses a key.
//   - C12: With [Options].MaxInterrupts, a Reconcile is cancelled when another client changes its
//     object's spec. The option limits how often in a row. Details: such a change is one of the
//     object's generation. It cancels the Reconcile at once, or within a second while a write of
//     the key to the object is under way. This is no failure. A key's own change cancels its
//     Reconcile only if its answer is lost or takes a second, or if two others have begun since.
//     A change that a no-op without a resourceVersion has returned does not cancel it.
//   - C13: A key that keeps making itself due is slowed down to one Reconcile a second. Changes
//     by others are not delayed, but for one that a no-op patch of the key has hidden: by a
//     second at most. Details: a no-op without a resourceVersion hides the change whose version
//     it has returned.
//   - C14: A key that fights with another writer for a field is slowed down to one Reconcile a
//     second. Changes of other fields are not delayed.
//
// Promises of other packages depend on this one:
//
//   - L9 of package leaderelection: the first Reconcile of a term sees what the previous term wrote
//     and, within the limits of "Takeover", had read, if that term was released, or
//     [Options].ReadYourWrites is over, or it is in a further cluster that no read answers from
//     yet.
//   - P1 of package shard: with Options.Partition, a key is reconciled only between the takeover of
//     its slot and the slot's stop. The slot is not released before its running Reconciles are
//     settled.
//   - P4 of package shard: the first Reconcile of a slot sees what its former owner wrote and,
//     within the same limits, had read, or [Options].ReadYourWrites is over, or the owner crashed.
//   - S9 of package cache: workers start when each source and Readable is synced, or cannot sync,
//     for example because its API is missing or forbidden. The log names the cause. Reads then
//     return the last known state, and [Stale] names it. With several clusters, the keys of each
//     one wait for that one only.
//
// # The log
//
// klog.FromContext and logr's functions return the same logger as [Logger]. Errors have level
// error. Conflicts, "already exists", throttling (429) and requests refused because the term is
// over have level info.
//
// Errors are grouped by their text. The names of the key, UIDs, numbers, and words with digits such
// as versions and hashes do not count. Text in double quotes counts, except for UIDs and the names
// of the key. The first error of a group is logged at once, so a key with an error of its own has a
// line. Then a group has nine more lines, and one in ten seconds with the number of omitted ones
// ("unlogged").
//
// A controller begins at most 100 groups a minute, and remembers the 500 that it used last. Errors
// of further groups are counted in one line a minute, and at the end of a term. These groups begin
// in the next minutes. [Controller.Snapshot] has every key's last error.
//
// # Concurrency
//
// Workers call Reconcile concurrently, for different keys. Methods may be called at any time, from
// any goroutine, unless they document otherwise. Warm starts a goroutine for each source, and one
// for each source and declared handle that waits for its sync. Lead starts one for each worker, one
// that watches for slow Reconciles, and one that reports fights; with Options.Partition, also one
// that follows the slots, and one for each former owner. Both join their goroutines before they
// return.
//
// Stability: stable.
package controller
