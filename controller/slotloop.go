// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// serveSlots serves the slots that the process owns, until ctx ends.
func (t *lead[K]) serveSlots(ctx, work context.Context) {
	c := t.controller
	f := &slotLoop[K]{lead: t, slots: c.shards.of.Load(), shown: make(chan []*served), synced: make(chan *input[K]), late: map[*input[K]]bool{}}
	defer f.running.Wait()
	for ctx.Err() == nil {
		all, changed := f.slots.partition.Owned()
		if f.slots.keep(all) {
			f.purge()
		}
		f.await(ctx, work, all)
		select {
		case <-changed:
		case batch := <-f.shown:
			if batch = f.merged(batch); len(batch) > 0 {
				f.serve(ctx, batch)
			}
		case i := <-f.synced:
			f.replayLate(ctx, i)
		case <-ctx.Done():
		}
	}
}

// slotLoop is one run of lead.serveSlots, whose goroutine alone uses known and late.
type slotLoop[K comparable] struct {
	*lead[K]

	slots   *servedSlots
	known   []term.OwnedSlot // that were current before
	running sync.WaitGroup
	late    map[*input[K]]bool // sources to replay when they are synced
	shown   chan []*served     // slots whose former owner's writes are visible
	synced  chan *input[K]     // sources that were late
}

// await waits for the writes of each former owner of new slots.
func (f *slotLoop[K]) await(ctx, work context.Context, all []term.OwnedSlot) {
	groups := map[*fence.Handover][]term.OwnedSlot{}
	for _, a := range all {
		if !slices.Contains(f.known, a) {
			a.Waits(f.controller.name, "it begins to follow the slot")
			t := fence.FromContext(a.Context(work))
			t.Reads(f.controller.inputs.informers)
			groups[t.Inherited()] = append(groups[t.Inherited()], a)
		}
	}
	f.known = all
	for left, group := range groups {
		f.running.Go(func() { f.awaitFormerOwner(ctx, work, left, group) })
	}
}

func (f *slotLoop[K]) awaitFormerOwner(ctx, work context.Context, left *fence.Handover, group []term.OwnedSlot) {
	k := &f.controller.consistency
	var missing atomic.Pointer[lastRun]
	show := func(what string) {
		for _, a := range group {
			a.Waits(f.controller.name, what)
		}
	}
	if !k.awaitHandover(ctx, work, left, wait{result: &missing, show: show}) {
		return
	}
	before, _ := work.Value(staleKey{}).(func() error)
	stale := func() error { return errors.Join(k.missingOf(&missing), before()) }
	work = context.WithValue(work, staleKey{}, stale)
	var batch []*served
	for _, a := range group {
		batch = append(batch, &served{Context: a.Context(work), OwnedSlot: a})
	}
	select {
	case f.shown <- batch:
	case <-ctx.Done():
	}
}

// merged adds the batches that wait, too, so that sources are replayed once. It drops slots
// that have stopped.
func (f *slotLoop[K]) merged(batch []*served) []*served {
	for {
		select {
		case more := <-f.shown:
			batch = append(batch, more...)
		default:
			return slices.DeleteFunc(batch, func(s *served) bool { return s.Stopped() })
		}
	}
}

// serve accepts the keys of slots, and delivers the objects that came before.
func (f *slotLoop[K]) serve(ctx context.Context, batch []*served) {
	c := f.controller
	var added [term.Slots]bool
	for _, s := range batch {
		added[s.Slot()] = true
		s.Waits(c.name, "its objects are delivered again")
	}
	for _, key := range f.slots.serve(batch) {
		c.queue.AddWith(key.(K), workqueue.AddOptions{Reason: workqueue.Reason{Source: sourceOfShards, Event: string(handler.Delete)}}) //nolint:forcetypeassert // of shards.accepts
	}
	ready := f.ready(ctx)
	err := c.inputs.each(func(i *input[K]) error {
		if !ready[i] {
			return nil
		}
		return i.replay(ctx, func(key K) bool {
			of, ok := c.shards.slotOf(f.slots, key)
			return ok && added[of]
		})
	})
	if err != nil && ctx.Err() == nil {
		if args, ok := c.repetition.Few("replay", "", "err", err); ok {
			slog.New(f.log).Error("took over slots, but not all of their objects were delivered", args...)
		}
	}
	for _, s := range batch {
		s.delivered.Store(true)
		s.Waits(c.name, "")
	}
	f.slots.notify()
}

// ready returns the inputs that can be replayed now. A source that is not synced follows later,
// because it may have delivered a part of its initial list. An input that is added after this call
// delivers all keys itself.
func (f *slotLoop[K]) ready(ctx context.Context) map[*input[K]]bool {
	ready := map[*input[K]]bool{}
	for _, i := range f.controller.inputs.all() {
		if ready[i] = i.source == nil || isSynced(ctx, i); ready[i] || f.late[i] {
			continue
		}
		f.late[i] = true
		f.running.Go(func() {
			if i.WaitForSync(ctx) != nil {
				return
			}
			select {
			case f.synced <- i:
			case <-ctx.Done():
			}
		})
	}
	return ready
}

// replayLate delivers a late source's objects in all served slots. Slots that come later replay it
// themselves.
func (f *slotLoop[K]) replayLate(ctx context.Context, i *input[K]) {
	delete(f.late, i)
	f.running.Go(func() {
		// It fails only when the source or the term ends.
		_ = i.replay(ctx, func(key K) bool { return f.controller.shards.servedOf(key) != nil })
	})
}

// purge makes all keys due that are no longer served, so that workers drop them and what is known
// of them.
func (f *slotLoop[K]) purge() {
	c := f.controller
	c.endPausesOverHTTP(func(key K) bool { return c.shards.servedOf(key) == nil })
	drop := func(key K) {
		if c.shards.servedOf(key) == nil {
			c.queue.RequeueNow(key, workqueue.Reason{Source: sourceOfShards, Event: eventStopped})
		}
	}
	for key := range c.queue.Keys() {
		drop(key)
	}
	for key, r := range c.records.all() {
		if r.past != nil || len(r.events) > 0 || r.spin.known || r.interrupted > 0 {
			drop(key)
		}
	}
}

// drop settles a key that this controller does not serve (any more), and forgets it.
func (t *lead[K]) drop(item workqueue.Item[K], was *served) {
	c := t.controller
	if !c.shards.leave(item, was) { // owned again meanwhile
		_ = item.Release() // cannot fail: the item is held
		return
	}
	of := c.records.take(item.Key())
	if of.past != nil && of.past.unnotify != nil {
		of.past.unnotify()
	}
	if of.spin.known || of.interrupted > 0 || len(c.records.look(item.Key()).events) > 0 {
		c.records.edit(item.Key(), func(r *record[K]) { r.events, r.spin, r.interrupted = nil, spin{}, 0 })
	}
	_ = item.Done()
}

// catchUp waits until the controller serves all slots that the process owned at the call.
func (d *servedSlots) catchUp(ctx context.Context, leading func() bool) error {
	all, _ := d.partition.Owned()
	for {
		d.mu.Lock()
		behind := slices.IndexFunc(all, func(a term.OwnedSlot) bool {
			s := d.serves[a.Slot()].Load()
			return !a.Stopped() && (s == nil || s.OwnedSlot != a || !s.delivered.Load())
		})
		changed := d.changed.When(false)
		d.mu.Unlock()
		if behind < 0 || !leading() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("slot %d is not served yet: %w", all[behind].Slot(), context.Cause(ctx))
		}
	}
}

// notify ends the waits of catchUp.
func (d *servedSlots) notify() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed.Open()
}
