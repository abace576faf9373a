// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// With inputs of several clusters, workers start when all inputs of one cluster are settled. Keys
// that only sources of the other clusters have added are parked until their cluster is settled.

func (i *input[K]) isSettled() bool { return run.Closed(i.settled) || run.Closed(i.ended) }

// waiting returns, by cluster, an input that is not settled. common is one that keys of all
// clusters wait for: its cluster is unknown, or has no source and therefore no keys of its own.
func (in *inputs[K]) waiting() (by map[string]*input[K], common *input[K], some bool) {
	list := in.all()
	sources := map[string]bool{}
	for _, i := range list {
		if i.source != nil {
			sources[in.hostOf(i)] = true
		}
	}
	by = map[string]*input[K]{}
	for _, i := range list {
		host := in.hostOf(i)
		switch {
		case i.isSettled():
		case host == "" || !sources[host]:
			common = i
		default:
			by[host] = i
		}
	}
	for host := range sources {
		some = some || by[host] == nil && host != ""
	}
	return by, common, some
}

func (in *inputs[K]) hostOf(i *input[K]) string { return in.informers.Host(i.handle()) }

// awaitFirst waits until the inputs of one cluster are settled, or all of them.
func (in *inputs[K]) awaitFirst(ctx context.Context, all bool) bool {
	for {
		changed := in.changed()
		by, common, some := in.waiting()
		if common == nil && (len(by) == 0 || some && !all) {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (in *inputs[K]) changed() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.news.When(false)
}

func (in *inputs[K]) notify() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.news.Open()
}

// holding returns the input that a key waits for, or nil if the key is not only from sources of
// clusters that are not settled.
func (in *inputs[K]) holding(reasons []workqueue.Reason) (held *input[K]) {
	by, _, _ := in.waiting()
	if len(by) == 0 {
		return nil
	}
	list := in.all()
	for _, r := range reasons {
		if r.Event == workqueue.EventWoken {
			continue
		}
		held = nil
		for _, i := range list { // sources of two clusters may have one name
			if i.source == nil || i.String() != r.Source {
				continue
			}
			if held = by[in.hostOf(i)]; held == nil {
				return nil
			}
		}
		if held == nil {
			return nil
		}
	}
	return held
}

// hold parks a key until its cluster is settled. p may be nil.
func (c *Controller[K]) hold(item workqueue.Item[K], p *lastRun) bool {
	if run.Closed(c.synced) {
		return false
	}
	if p == nil {
		p = &lastRun{}
	}
	p.held = false
	reasons, dropped := item.Reasons()
	on := c.inputs.holding(reasons)
	if on == nil || dropped > 0 {
		return false
	}
	p.held = true
	c.records.put(item.Key(), p) // before another worker can take the key
	_, state := stateOf(on.Readable)
	_ = item.Park("its cluster is not synced: "+state, 0) // cannot fail: the item is held
	now, _ := c.queue.Lookup(item.Key())
	if c.inputs.holding(now.Reasons) != on { // settled meanwhile, or added by another cluster
		c.queue.Wake(item.Key())
	}
	return true
}

// wakeHeld wakes the given keys that hold has parked: another cluster may have added them.
func (c *Controller[K]) wakeHeld(keys []K) {
	if run.Closed(c.synced) || c.records.n.Load() == 0 {
		return
	}
	for _, key := range keys {
		if p := c.records.look(key).past; p != nil && p.held {
			c.queue.Wake(key)
		}
	}
}

// wakeAllHeld wakes all of them: an input is settled. After synced, no key is held: Warm wakes them
// once more when it closes synced.
func (c *Controller[K]) wakeAllHeld() {
	if !run.Closed(c.synced) {
		c.wakeEachHeld()
	}
}

func (c *Controller[K]) wakeEachHeld() {
	for key, r := range c.records.all() {
		if r.past != nil && r.past.held {
			c.queue.Wake(key)
		}
	}
}
