// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/list"
	"time"
)

const (
	mostTombstones = 10_000
	tombstoneLasts = time.Minute
	eventStopped   = "SlotStopped"
	sourceOfShards = "shards"
)

// tombstones are keys of foreign slots whose object was deleted a short time ago. No cache has them
// when the slot is taken over. The zero value is empty.
type tombstones struct {
	keys  map[any]*list.Element
	order list.List // of tombstone, oldest first
}

type tombstone struct {
	slot uint8
	key  any
	at   time.Time
}

func (t *tombstones) add(of uint8, key any) {
	if t.keys == nil {
		t.keys = map[any]*list.Element{}
	}
	t.remove(t.keys[key])
	t.keys[key] = t.order.PushBack(tombstone{of, key, time.Now()})
	t.expire()
}

// take removes and returns the keys of a slot.
func (t *tombstones) take(of uint8) (keys []any) {
	t.expire()
	var next *list.Element
	for e := t.order.Front(); e != nil; e = next {
		next = e.Next()
		if s := stoneOf(e); s.slot == of {
			keys = append(keys, s.key)
			t.remove(e)
		}
	}
	return keys
}

func (t *tombstones) expire() {
	for e := t.order.Front(); e != nil; e = t.order.Front() {
		if len(t.keys) <= mostTombstones && time.Since(stoneOf(e).at) <= tombstoneLasts {
			return
		}
		t.remove(e)
	}
}

func (t *tombstones) remove(e *list.Element) {
	if e != nil {
		delete(t.keys, stoneOf(e).key)
		t.order.Remove(e)
	}
}

func stoneOf(e *list.Element) tombstone { return e.Value.(tombstone) } //nolint:forcetypeassert // see order
