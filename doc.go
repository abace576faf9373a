// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package setpoint is a Kubernetes controller framework built on client-go. It exports nothing: this page says how
// its packages fit together.
//
// # One event, six steps
//
// An event runs through the packages in the order of this list:
//
//	API server ──watch──▶ cache/   informer      keeps a local copy, shared by everyone who asked for the same scope
//	             1        source/  Source        turns a change into handler.Event{Op, Old, New, Initial}
//	             2        handler/ Handler       Event → keys (self, owner, mapped); filters drop what cannot matter
//	             3        workqueue/ Add         dedupe, class, tenant, due time
//	             4        controller/ worker     processNextItem takes an Item: the key is held by this worker alone
//	             5        controller/ Reconcile  user code; its requests go through client/
//	             6        controller/ settle     exactly one of Done · Retry · After, back to 3
//
// Around them: manager starts, stops and watches over one process; leaderelection says whether that process may act
// now; hook is what can be observed; envtest is a real control plane for tests.
//
// Start at examples/website, which is a whole operator with its tests, or at package manager.
package setpoint
