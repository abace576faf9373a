// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// ShardKey is an optional interface of a key type, for [Options].Partition.
type ShardKey interface {
	// ShardKey returns the name that decides the key's slot, such as its object's name. It must
	// always return the same, in every process.
	ShardKey() types.NamespacedName
}

// placeOf returns nil if keys of type K have no place.
func placeOf[K comparable]() func(K) types.NamespacedName {
	same := func(key types.NamespacedName) types.NamespacedName { return key }
	if f, ok := any(same).(func(K) types.NamespacedName); ok {
		return f
	}
	if reflect.TypeFor[K]().Implements(reflect.TypeFor[ShardKey]()) {
		return func(key K) types.NamespacedName { return any(key).(ShardKey).ShardKey() }
	}
	return nil
}

// divide makes Options.Partition effective.
func (c *Controller[K]) divide() {
	if c.o.Partition == nil || c.shards.divided() {
		return
	}
	if k := reflect.TypeFor[K](); c.shards.place == nil {
		c.inputs.complain(fmt.Sprintf("controller.Options.Partition: a key of type %s has no slot; give %s a method ShardKey() types.NamespacedName", k, k))
	}
	c.shards.divide(c.o.Partition)
}

func (c *Controller[K]) reportUnplaced(key K, err error) {
	log := c.shards.log.Load()
	if log == nil { // before Warm
		log = c.logger(context.Background())
	}
	if c.repetition.Once("slot", err.Error()) {
		log.Error("a key has no slot, so no process reconciles it", "key", fmt.Sprint(key), "err", err)
	}
}

// shards is the queue for all adds from outside. It drops keys that this controller does not serve.
// The zero value serves all.
type shards[K comparable] struct {
	queue  *currentQueue[K]
	place  func(K) types.NamespacedName // nil: keys have none
	report func(key K, err error)
	log    atomic.Pointer[slog.Logger] // set by Warm
	of     atomic.Pointer[servedSlots] // nil: not divided
}

// servedSlots is the part of shards without a type of keys.
type servedSlots struct {
	partition term.Partition
	serves    [term.Slots]atomic.Pointer[served] // nil: not by this controller

	mu      sync.Mutex // guards what follows, and changes of serves
	gone    tombstones
	changed run.Barrier
}

func (s *shards[K]) divide(all term.Partition) { s.of.Store(&servedSlots{partition: all}) }

func (s *shards[K]) divided() bool { return s.of.Load() != nil }

// slotOf reports false if the key has no slot.
func (s *shards[K]) slotOf(d *servedSlots, key K) (of uint8, ok bool) {
	of, err := place(d.partition, s.place, key)
	if err != nil {
		s.report(key, err)
	}
	return of, err == nil
}

func place[K comparable](all term.Partition, name func(K) types.NamespacedName, key K) (of uint8, err error) {
	defer run.Recover(&err)
	if name == nil {
		return 0, fmt.Errorf("a key of type %T has no method ShardKey", key)
	}
	return all.Slot(name(key))
}

// servedOf returns nil if another process serves the key, or will.
func (s *shards[K]) servedOf(key K) *served {
	d := s.of.Load()
	of, ok := s.slotOf(d, key)
	if !ok {
		return nil
	}
	return d.serves[of].Load()
}

// accepts reports whether this controller serves the key. It remembers a foreign key whose object
// was deleted.
func (s *shards[K]) accepts(key K, deleted bool) bool {
	d := s.of.Load()
	if d == nil {
		return true
	}
	of, ok := s.slotOf(d, key)
	if !ok || d.serves[of].Load() != nil {
		return ok
	}
	return deleted && !d.remember(of, key, nil)
}

// Add implements workqueue.Adder.
func (s *shards[K]) Add(key K) {
	if s.accepts(key, false) {
		s.queue.do(func(q *workqueue.Queue[K]) { q.Add(key) })
	}
}

// AddWith implements workqueue.Adder.
func (s *shards[K]) AddWith(key K, how workqueue.AddOptions) {
	if s.accepts(key, isDeletion(how.Reason)) {
		s.queue.do(func(q *workqueue.Queue[K]) { q.AddWith(key, how) })
	}
}

// AddAll implements workqueue.Adder.
func (s *shards[K]) AddAll(keys []K, how workqueue.AddOptions) {
	if s.divided() {
		foreign := func(key K) bool { return !s.accepts(key, isDeletion(how.Reason)) }
		keys = slices.DeleteFunc(slices.Clone(keys), foreign)
	}
	s.queue.do(func(q *workqueue.Queue[K]) { q.AddAll(keys, how) })
}

// Lookup implements workqueue.Adder.
func (s *shards[K]) Lookup(key K) (workqueue.KeyState[K], bool) { return s.queue.Load().Lookup(key) }

func isDeletion(r workqueue.Reason) bool { return r.Event == string(handler.Delete) }

// leave reports whether a taken key is still not served. It remembers an unfinished deletion.
func (s *shards[K]) leave(item workqueue.Item[K], was *served) bool {
	d := s.of.Load()
	of, ok := s.slotOf(d, item.Key())
	if !ok {
		return true
	}
	if reasons, _ := item.Reasons(); slices.ContainsFunc(reasons, isDeletion) {
		return d.remember(of, item.Key(), was)
	}
	return d.serves[of].Load() == was
}

// remember notes a deletion in a slot. It returns false if it was taken over again.
func (d *servedSlots) remember(of uint8, key any, before *served) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.serves[of].Load() != before {
		return false
	}
	d.gone.add(of, key)
	return true
}

// serve begins to serve slots, and returns the keys of them that were deleted shortly before.
func (d *servedSlots) serve(batch []*served) (deleted []any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range batch {
		d.serves[s.Slot()].Store(s)
		deleted = append(deleted, d.gone.take(s.Slot())...)
	}
	return deleted
}

// keep stops serving all other slots, and reports whether there were any.
func (d *servedSlots) keep(all []term.OwnedSlot) (lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.serves {
		if s := d.serves[i].Load(); s != nil && !slices.Contains(all, s.OwnedSlot) {
			d.serves[i].Store(nil)
			lost = true
		}
	}
	d.changed.Open()
	return lost
}

func (d *servedSlots) count() (n int) {
	for i := range d.serves {
		if d.serves[i].Load() != nil {
			n++
		}
	}
	return n
}
