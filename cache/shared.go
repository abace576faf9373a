// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// pinned is an informer that the cache runs, and that stops only with it.
type pinned struct{ toolscache.SharedIndexInformer }

func (p pinned) Run(stop <-chan struct{}) { <-stop }

func (p pinned) RunWithContext(ctx context.Context) { <-ctx.Done() }

// resyncCheck is how often client-go checks which event handlers are due for a resync: its minimum.
// With 0, it would ignore their periods.
const resyncCheck = time.Second

// shared is an informer whose event handlers are resynced only if they are added with a period;
// client-go would give the others resyncCheck. It hides marks from other event handlers.
type shared struct{ toolscache.SharedIndexInformer }

func (s shared) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

func (s shared) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

func (s shared) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if options.ResyncPeriod == nil {
		options.ResyncPeriod = new(time.Duration)
	}
	return s.SharedIndexInformer.AddEventHandlerWithOptions(unmarked{h}, options)
}

// markUID is the UID of a mark: the delete of an object that never existed. CatchUp sends marks
// through an informer, after the events of everything in the store.
const markUID = types.UID("setpoint.dev/mark")

func markOf(obj any) (name string, ok bool) {
	if o, is := obj.(Object); is && o.GetUID() == markUID {
		return o.GetName(), true
	}
	return "", false
}

type marked interface{ arrived(mark string) }

type unmarked struct {
	toolscache.ResourceEventHandler
}

func (u unmarked) OnDelete(obj any) {
	mark, ok := markOf(obj)
	if !ok {
		u.ResourceEventHandler.OnDelete(obj)
	} else if m, ok := u.ResourceEventHandler.(marked); ok {
		m.arrived(mark)
	}
}

// newMark returns a mark of the form of an informer's objects. codec is nil unless they are packed.
func newMark(name string, example Object, codec *packed.Codec) Object {
	mark, _ := example.DeepCopyObject().(Object)
	mark.SetUID(markUID)
	mark.SetName(name)
	if codec == nil {
		return mark
	}
	p, _ := codec.Pack(wire.JSON, mark) // an empty object of an API type can be encoded
	return p
}
