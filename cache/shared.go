// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// pinned is an informer that the cache runs, and never stops before its own end.
type pinned struct{ toolscache.SharedIndexInformer }

// Run waits until it is asked to stop. The cache runs the informer.
func (p pinned) Run(stop <-chan struct{}) { <-stop }

// RunWithContext waits until ctx is done. The cache runs the informer.
func (p pinned) RunWithContext(ctx context.Context) { <-ctx.Done() }

// resyncCheck is how often client-go's informer looks whether an event handler is due to see every object again. It is the
// least that client-go allows. With 0 it would ignore the periods that handlers are added with.
const resyncCheck = time.Second

// shared is an informer whose event handlers see objects again only if they are added with a resync
// period of their own: client-go would give the others that of its checks. They see no marks.
type shared struct{ toolscache.SharedIndexInformer }

// AddEventHandler adds a handler that is not resynced.
func (s shared) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler that is resynced, unless period is 0.
func (s shared) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions adds a handler that is resynced if the options say so.
func (s shared) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if options.ResyncPeriod == nil {
		options.ResyncPeriod = new(time.Duration)
	}
	return s.SharedIndexInformer.AddEventHandlerWithOptions(unmarked{h}, options)
}

// markUID is the UID of a mark: the delete of an object that never existed, which CatchUp sends through
// an informer. It comes after the events of all that the store has.
const markUID = types.UID("setpoint.dev/mark")

// markOf returns the name of a mark.
func markOf(obj any) (name string, ok bool) {
	if o, is := obj.(Object); is && o.GetUID() == markUID {
		return o.GetName(), true
	}
	return "", false
}

// marked is an event handler that wants to know of marks.
type marked interface{ arrived(mark string) }

// unmarked is an event handler that takes no mark for a delete.
type unmarked struct {
	toolscache.ResourceEventHandler
}

// OnDelete implements toolscache.ResourceEventHandler.
func (u unmarked) OnDelete(obj any) {
	mark, ok := markOf(obj)
	if !ok {
		u.ResourceEventHandler.OnDelete(obj)
	} else if m, ok := u.ResourceEventHandler.(marked); ok {
		m.arrived(mark)
	}
}
