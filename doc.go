// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package setpoint is a Kubernetes controller framework built on client-go. It exports nothing:
// this page shows how its packages fit together. Start with package manager, or with the complete
// operators examples/hello and examples/website.
//
// # One event, six steps
//
//	API server ──watch──▶ cache/   informer      keeps a local copy, shared by all handles of a scope
//	             1        source/  Source        turns a change into handler.Event{Op, Old, New, Initial}
//	             2        handler/ Handler       maps the event to keys (self, owner, mapped); predicates drop events
//	             3        workqueue/ Add         deduplicates; orders by class, tenant and due time
//	             4        controller/ worker     processNextItem takes an Item: no other worker has the key
//	             5        controller/ Reconcile  your code; its requests go through client/
//	             6        controller/ settle     one of Done, Retry, After, Park, GiveUp, Release
//
// The files in which it happens:
//
//	1  in cache/internal/listwatch: packed_watch.go or json_watch.go, stream.go, slotfilter.go,
//	   outlet.go; client-go's store, with the transform of cache/informer.go and cache/intake.go;
//	   cache/shared.go, cache/internal/coalesce/listener.go, cache/registration.go;
//	   source/feed.go, source/retry.go; controller/observer.go (interrupts, annotations)
//	2  handler/handler.go, or the file of another handler or predicate
//	3  controller/observer.go (AddAll), controller/shards.go (drops keys of others), workqueue/add.go
//	4  workqueue/get.go, controller/worker.go; clusters.go, spin.go or consistency.go may put the key
//	   back
//	5  yours; client/ and internal/transport/ for its requests
//	6  controller/settle.go, workqueue/item.go
//
// The other packages:
//
//   - manager starts, monitors and stops everything in one process.
//   - leaderelection and term decide whether the process may act now.
//   - ledger records the requests of a Reconcile.
//   - status, owner, finalizer and events help a Reconcile report and clean up.
//   - webhook answers the API server's calls for admission and conversion.
//   - server serves HTTP, for health endpoints and metrics for example.
//   - hook has the events for observers, such as package metrics.
//   - debug shows the state of a process, and envtest runs a real control plane for tests,
//     envtest/sim an API server in memory. sweep crashes an operator at each write.
package setpoint
