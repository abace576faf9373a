// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	theirhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// predicateOf adapts a predicate.
func predicateOf(p predicate.Predicate) handler.Predicate {
	return predicateAdapter{p, strings.TrimPrefix(fmt.Sprintf("%T", p), "predicate.")}
}

type predicateAdapter struct {
	theirs predicate.Predicate
	name   string
}

func (p predicateAdapter) String() string { return p.name }

func (p predicateAdapter) Keep(e handler.Event) bool {
	switch e.Op {
	case handler.Create:
		return p.theirs.Create(event.CreateEvent{Object: theirObject(e.New), IsInInitialList: e.Initial})
	case handler.Delete:
		return p.theirs.Delete(event.DeleteEvent{Object: theirObject(e.Old), DeleteStateUnknown: e.Stale})
	default:
		return p.theirs.Update(event.UpdateEvent{ObjectOld: theirObject(e.Old), ObjectNew: theirObject(e.New)})
	}
}

func theirObject(o handler.Object) client.Object {
	obj, _ := o.(client.Object) // every object of the cache is one
	return obj
}

// handlerOf adapts an event handler. Keys that it adds at once are the result; others go to the
// queue.
func (b *built) handlerOf(h theirhandler.EventHandler) handler.Handler[types.NamespacedName] {
	return handler.Func[types.NamespacedName](func(ctx context.Context, e handler.Event) (keys []types.NamespacedName, err error) {
		q := &requests{limited: b.limiter.When, add: func(all []types.NamespacedName, how workqueue.AddOptions) {
			if how.After == 0 && how.Class != workqueue.Interactive {
				keys = append(keys, all...)
				return
			}
			how.Reason = workqueue.Reason{Source: fmt.Sprintf("%T", h), Object: e.Key().String(), Event: string(e.Op)}
			b.controller.Queue().AddAll(all, how)
		}}
		ctx = context.WithValue(ctx, builtKey{}, b)
		switch e.Op {
		case handler.Create:
			h.Create(ctx, event.CreateEvent{Object: theirObject(e.New), IsInInitialList: e.Initial}, q)
		case handler.Delete:
			h.Delete(ctx, event.DeleteEvent{Object: theirObject(e.Old), DeleteStateUnknown: e.Stale}, q)
		default:
			h.Update(ctx, event.UpdateEvent{ObjectOld: theirObject(e.Old), ObjectNew: theirObject(e.New)}, q)
		}
		return keys, nil
	})
}
