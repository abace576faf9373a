// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package coalesce

import (
	toolscache "k8s.io/client-go/tools/cache"
)

// Registration is what AddEventHandler returned for a Listener. It is synced when the handler has
// seen all initial objects.
type Registration struct {
	*Listener

	// Handle is the informer's own registration, of the Listener.
	Handle toolscache.ResourceEventHandlerRegistration
}

// Remove removes the handler from its informer, and drops the events that wait. It does not wait
// for a call in progress; see ShutdownChan.
func (r *Registration) Remove(from toolscache.SharedIndexInformer) error {
	err := from.RemoveEventHandler(r.Handle)
	r.Close()
	return err
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *Registration) HasSynced() bool {
	if !r.Handle.HasSynced() {
		return false
	}
	r.flush()
	select {
	case <-r.synced:
		return true
	default:
		return false
	}
}

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *Registration) HasSyncedChecker() toolscache.DoneChecker { return checker{r} }

// ShutdownChan is used by client-go's ShutDownEventHandler.
func (r *Registration) ShutdownChan() <-chan struct{} { return r.Done() }

type checker struct{ *Registration }

func (c checker) Name() string { return c.Handle.HasSyncedChecker().Name() }

// Done starts a goroutine, which ends with the Listener, unless the handler is synced.
func (c checker) Done() <-chan struct{} {
	if !c.HasSynced() {
		c.follow(c.Handle.HasSyncedChecker().Done())
	}
	return c.synced
}
