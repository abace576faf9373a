// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/internal/object"
)

const (
	// manyAhead is how many objects may be delivered before the slotFilter waits for the store.
	manyAhead = 4096
	// positionAfter is how long the store's version may be late because events were dropped.
	positionAfter = 100 * time.Millisecond
)

// slotFilter makes a stream deliver the objects of a portion, while its slots change. Only the
// stream's goroutine uses it. Without a portion it delivers everything.
//
// A slot joins beside the running watch: a list is made, at a version from which no event of the
// slot is dropped. Until the watch has reached the newest object of that list, the last event of
// each object is held. Then the state of the slot at the watch's version is the held event or, if
// there is none, the listed object.
type slotFilter struct {
	*portion
	*outlet

	progress *Progress
	list     func(ctx context.Context, slots *SlotSet, from string) ([]object.Object, error)
	informer Informer

	// ahead are objects delivered since the last mark, which the store may lack: true if they
	// exist, false if they are deleted.
	ahead map[types.NamespacedName]bool
	join  *join // or nil
	begun bool

	wanted <-chan struct{}  // closed when Wanted changes
	listed chan joined      // the list of join
	late   <-chan time.Time // when the store's version must follow
	again  <-chan struct{}  // of progress

	running sync.WaitGroup // the list of join
}

// join is the addition of slots.
type join struct {
	from   string // version from which no event is dropped
	held   map[types.NamespacedName]watch.Event
	items  []object.Object
	ready  bool   // items is set
	until  string // version of the newest item
	cancel context.CancelFunc
}

type joined struct {
	items []object.Object
	err   error
}

// resume is called at the beginning of each watch. The first one after a list begins.
func (k *slotFilter) resume(ctx context.Context) bool {
	return k.begun || k.portion == nil || k.initial() || k.begin(ctx)
}

// begin is called when the reflector has the list.
func (k *slotFilter) begin(ctx context.Context) bool {
	k.begun = true
	return k.portion == nil || k.mark(ctx) && k.follow(ctx)
}

// close ends a list that is still running.
func (k *slotFilter) close() {
	if k.portion == nil {
		return
	}
	if k.join != nil {
		k.join.cancel()
		k.join, k.listed = nil, nil
		k.progress.fail(nil)
	}
	k.end(foreign)
	k.running.Wait()
}

// mark waits until the store has everything that was delivered. It returns false if the stream
// ends before.
func (k *slotFilter) mark(ctx context.Context) bool {
	k.again = k.progress.again
	phases := k.now()
	n := k.progress.next(&phases)
	// The store keeps its version.
	mark := k.portion.mark(markPrefix+strconv.FormatInt(n, 10), k.options.ResourceVersion)
	if !k.give(ctx, watch.Event{Type: watch.Deleted, Object: mark}) || !k.progress.await(ctx, n, k.stopped) {
		return false
	}
	clear(k.ahead)
	return true
}

// position moves the store to the version of the watch.
func (k *slotFilter) position(ctx context.Context) bool {
	k.late = nil
	return k.give(ctx, watch.Event{Type: watch.Bookmark, Object: k.portion.mark("", k.options.ResourceVersion)})
}

// follow removes slots that are not wanted any more, and begins to add others.
func (k *slotFilter) follow(ctx context.Context) bool {
	wanted, changed := k.Wanted()
	k.wanted = changed
	gone, missing := k.portion.follow(&wanted)
	if gone != (SlotSet{}) && !k.leave(ctx, &gone) {
		return false
	}
	if k.join == nil && missing != (SlotSet{}) {
		k.start(ctx, &missing)
	}
	return true
}

// leave delivers deletes for the objects of slots.
func (k *slotFilter) leave(ctx context.Context, gone *SlotSet) bool {
	if !k.mark(ctx) {
		return false
	}
	for _, obj := range k.informer.Store().List() {
		o, ok := obj.(object.Object)
		if !ok {
			continue
		}
		if slot, has := k.slotOf(o); !has || !gone[slot] {
			continue
		}
		k.ahead[object.Key(o)] = false
		if !k.give(ctx, watch.Event{Type: watch.Deleted, Object: known{o}}) {
			return false
		}
	}
	return k.position(ctx) && k.mark(ctx)
}

func (k *slotFilter) start(ctx context.Context, slots *SlotSet) {
	from := k.portion.begin(slots, k.options.ResourceVersion)
	ctx, cancel := context.WithCancel(ctx)
	k.join = &join{from: from, held: map[types.NamespacedName]watch.Event{}, cancel: cancel}
	results := make(chan joined, 1)
	k.listed = results
	k.running.Go(func() {
		items, err := k.list(ctx, slots, from)
		results <- joined{items, err}
	})
}

// arrive takes the list of the slots that join.
func (k *slotFilter) arrive(ctx context.Context, list joined) bool {
	k.listed = nil
	if list.err != nil {
		return ctx.Err() == nil && k.relist(ctx, list.err.Error())
	}
	k.join.items, k.join.ready, k.join.until = list.items, true, k.join.from
	for _, o := range list.items {
		if o.GetResourceVersion() == k.join.until || k.phaseOf(o) != joining {
			continue
		}
		switch c, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), k.join.until); {
		case err != nil:
			return k.relist(ctx, err.Error())
		case c > 0:
			k.join.until = o.GetResourceVersion()
		}
	}
	return k.advance(ctx)
}

// relist ends the stream: the reflector lists the wanted slots.
func (k *slotFilter) relist(ctx context.Context, why string) bool {
	k.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(apierrors.NewResourceExpired("slots are added by another list: " + why))})
	return false
}

// advance delivers the objects of the slots that join, once the watch has reached the list.
func (k *slotFilter) advance(ctx context.Context) bool {
	if k.join == nil || !k.join.ready {
		return true
	}
	c, err := resourceversion.CompareResourceVersion(k.options.ResourceVersion, k.join.until)
	if err != nil {
		return k.relist(ctx, err.Error())
	}
	if c < 0 {
		return true
	}
	j := k.join
	k.join = nil
	j.cancel()
	for _, o := range j.items {
		if _, newer := j.held[object.Key(o)]; newer || k.phaseOf(o) != joining {
			continue
		}
		if !k.add(ctx, watch.Event{Type: watch.Added, Object: o}) {
			return false
		}
	}
	for _, e := range j.held {
		if o, ok := e.Object.(object.Object); !ok || e.Type == watch.Deleted || k.phaseOf(o) != joining {
			continue
		}
		if !k.add(ctx, e) {
			return false
		}
	}
	k.end(kept)
	k.progress.fail(nil)
	return k.position(ctx) && k.mark(ctx) && k.follow(ctx)
}

func (k *slotFilter) add(ctx context.Context, e watch.Event) bool {
	k.ahead[object.Key(e.Object.(object.Object))] = true //nolint:forcetypeassert // the callers checked it
	return k.give(ctx, e)
}

// pass delivers an event, or drops it.
func (k *slotFilter) pass(ctx context.Context, e watch.Event) bool {
	o, ok := e.Object.(object.Object)
	if k.portion == nil || !ok || e.Type == watch.Bookmark {
		return k.give(ctx, e) && k.advance(ctx)
	}
	return (len(k.ahead) < manyAhead || k.initial() || k.mark(ctx)) && k.deliver(ctx, e, o) && k.advance(ctx)
}

func (k *slotFilter) deliver(ctx context.Context, e watch.Event, o object.Object) bool {
	name, now := object.Key(o), foreign
	if _, dropped := o.(*skipped); !dropped {
		if slot, has := k.slotOf(o); !k.drops(slot, has, o.GetResourceVersion()) {
			now = k.phaseOf(o)
		}
	}
	known := now != kept && k.Owner.Kind != "" && k.known(name) // it had another owner
	if k.hold(e, o, now == joining && !known) {
		return true
	}
	switch {
	case e.Type != watch.Deleted && now != foreign:
		return k.add(ctx, e)
	case !known && (now != kept || !k.known(name)):
		if k.late == nil && !k.initial() {
			k.late = time.After(positionAfter)
		}
		return true
	case now != foreign:
		k.ahead[name] = false
		return k.give(ctx, e)
	default:
		return k.remove(ctx, name, o.GetResourceVersion())
	}
}

// hold reports whether it holds an event until slots have joined. Of other objects with owners, it
// records that the list does not count, as they may be in the list with their former owner. Events
// before the join's version may have been overtaken by others that were dropped.
func (k *slotFilter) hold(e watch.Event, o object.Object, joins bool) bool {
	if k.join == nil || !joins && k.Owner.Kind == "" {
		return false
	}
	if object.AtLeast(k.join.from, o.GetResourceVersion()) {
		return joins
	}
	if !joins {
		e = watch.Event{Type: watch.Deleted}
	}
	k.join.held[object.Key(o)] = e
	return joins
}

// known reports whether an object is in the store, or will be.
func (k *slotFilter) known(name types.NamespacedName) bool {
	if there, ok := k.ahead[name]; ok || k.initial() {
		return there
	}
	_, there, _ := k.informer.Store().GetByKey(object.Name(name))
	return there
}

// remove delivers the delete of an object that now has another owner.
func (k *slotFilter) remove(ctx context.Context, name types.NamespacedName, version string) bool {
	if k.initial() { // the store does not have the list yet, and no handler sees the delete
		gone := k.portion.mark(name.Name, version)
		gone.SetNamespace(name.Namespace)
		k.ahead[name] = false
		return k.give(ctx, watch.Event{Type: watch.Deleted, Object: known{gone}})
	}
	if k.ahead[name] && !k.mark(ctx) {
		return false
	}
	stored, _, _ := k.informer.Store().GetByKey(object.Name(name))
	o, ok := stored.(object.Object)
	if !ok {
		return true
	}
	k.ahead[name] = false
	return k.give(ctx, watch.Event{Type: watch.Deleted, Object: knownAt(o, version)})
}
