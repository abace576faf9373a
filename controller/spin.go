// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// A key spins if it makes itself due, by its own writes or by a RequeueAfter shorter than spinGap,
// spinFree times in a row, each less than spinGap after the one before began. From then on its
// Reconciles begin at least spinBase apart, a time that doubles with each up to spinMax. A
// Reconcile that has any other reason begins at once, and ends the row.
const (
	spinFree = 100
	spinGap  = 100 * time.Millisecond
	spinBase = 10 * time.Millisecond
	spinMax  = time.Second
)

// spins are the keys that made themselves due last. A key is forgotten when its Reconcile does
// nothing that could make it due again.
type spins[K comparable] struct {
	n atomic.Int64 // how many there are: mostly none

	mu      sync.Mutex // guards what follows
	keys    map[K]*spin
	sweepAt int
}

// spin is what is known of such a key. Only the worker that holds the key changes it, under the
// mutex.
type spin struct {
	row  int           // how many Reconciles in a row the key itself has caused
	last time.Duration // when the last one began, by the controller's clock
}

// pause is how long after the last Reconcile the next one may begin.
func (s *spin) pause() time.Duration {
	over := s.row - spinFree
	if over < 0 {
		return 0
	}
	return min(spinMax, spinBase<<min(over, 10))
}

// cause is who has made a key due.
type cause uint8

const (
	others   cause = iota // or it is not known
	probably              // the key itself, as far as its reasons were recorded
	itself
)

// causeOf returns who has made a key due. why is a write of its own, if that was it.
func (c *Controller[K]) causeOf(item workqueue.Item[K], p *past) (by cause, why *ledger.Write) {
	known := c.spins.n.Load() > 0 && c.spins.has(item.Key())
	if !known && (p == nil || len(p.awaited) == 0) {
		return others, nil
	}
	var made map[version]*ledger.Write
	if p != nil {
		made = madeBy(p.awaited)
	}
	reasons := item.Reasons()
	for i := range reasons {
		r := &reasons[i]
		switch {
		case r.UID == "" && (r.Event == workqueue.EventAfter || r.Event == workqueue.EventWoken || r.Event == workqueue.EventParkExpired):
		case c.isOwn(made, r):
			why = made[version{r.UID, r.ResourceVersion}]
			if why == nil {
				why = made[version{uid: r.UID}]
			}
		default:
			return others, nil
		}
	}
	switch {
	case !known && why == nil: // its RequeueAfter was long enough
		return others, nil
	case item.ReasonsDropped() > 0:
		return probably, why
	default:
		return itself, why
	}
}

// slowDown settles a key that spins and is due too early, and reports whether it did. What makes it
// due earlier is anything but the key itself.
func (c *Controller[K]) slowDown(item workqueue.Item[K], p *past, by cause) bool {
	if by != itself {
		return false
	}
	wait := c.spins.wait(item.Key(), c.clock.now())
	if wait <= 0 {
		return false
	}
	if p != nil {
		c.journal.put(item.Key(), p) // before another worker can take the key
	}
	// A backoff, unlike an After, counts as busy (W12): the key has events to see. It is no
	// failure.
	_, _ = item.RetryWith(nil, workqueue.Again{Exactly: wait, Event: workqueue.EventAfter})
	c.queue.Forget(item.Key())
	return true
}

// noteCause notes that a Reconcile of a key begins, and who has caused it. The log says once that a
// key spins.
func (c *Controller[K]) noteCause(r *running[K], by cause, why *ledger.Write) {
	if by == others {
		c.spins.forget(r.item.Key())
		return
	}
	if !c.spins.begin(r.item.Key(), c.clock.now()) || !c.told.first("spin", fmt.Sprint(r.item.Key())) {
		return
	}
	reason := "its RequeueAfter is shorter than " + spinGap.String()
	if why != nil {
		reason = "its own write: " + why.String()
	}
	r.logger().Warn("a key keeps making itself due, and is slowed down; write only what differs from what is stored, or return a longer RequeueAfter",
		"cause", reason, "reconciles", spinFree, "atMostEvery", spinMax.String())
}

// noteEnd notes what a Reconcile does that may make its key due again, before the key is settled.
func (c *Controller[K]) noteEnd(r *running[K], end *ending) {
	soon := end.outcome == hook.RequeuedAfter && end.result.RequeueAfter < spinGap
	if !soon && c.spins.n.Load() == 0 {
		return
	}
	switch {
	case soon:
		c.spins.expect(r.item.Key(), c.clock.now())
	case r.wrote() == nil || end.outcome != hook.Succeeded && end.outcome != hook.RequeuedAfter:
		c.spins.forget(r.item.Key())
	}
}

func (s *spins[K]) has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key] != nil
}

// wait returns for how long a key may not be reconciled for its own sake.
func (s *spins[K]) wait(key K, now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.keys[key]
	if one == nil {
		return 0
	}
	return one.last + one.pause() - now
}

// begin notes a Reconcile that the key itself has caused, and reports whether the key spins from
// now on.
func (s *spins[K]) begin(key K, now time.Duration) (spins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.enterLocked(key, now)
	if now-one.last >= one.pause()+spinGap {
		one.row = 0
	}
	one.row++
	one.last = now
	return one.row == spinFree
}

// expect notes that a key will make itself due soon.
func (s *spins[K]) expect(key K, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterLocked(key, now)
}

func (s *spins[K]) enterLocked(key K, now time.Duration) *spin {
	one := s.keys[key]
	if one != nil {
		return one
	}
	if s.keys == nil {
		s.keys, s.sweepAt = map[K]*spin{}, firstSweep
	}
	if len(s.keys) >= s.sweepAt {
		s.sweepLocked(now)
	}
	one = &spin{last: now}
	s.keys[key] = one
	s.n.Store(int64(len(s.keys)))
	return one
}

// sweepLocked forgets the keys whose last write has not made them due.
func (s *spins[K]) sweepLocked(now time.Duration) {
	for key, one := range s.keys {
		if now-one.last > one.pause()+spinGap {
			delete(s.keys, key)
		}
	}
	s.sweepAt = max(firstSweep, 2*len(s.keys))
}

func (s *spins[K]) forget(key K) {
	if s.n.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
	s.n.Store(int64(len(s.keys)))
}
