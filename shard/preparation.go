// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// preparations are the slots whose objects Options.SlotCache holds, or will. Without a SlotCache,
// every slot is prepared. Only the session's goroutine uses it.
type preparations struct {
	m *member

	done    map[slots.Slot]bool // false: the SlotCache has not all objects yet
	asked   time.Time           // when it was asked for some of those that it has not, or zero
	news    chan preparation
	waiting sync.WaitGroup // goroutines that send to news
}

// preparation is the result of waiting for the objects of slots.
type preparation struct {
	of  []slots.Slot
	err error
}

func (p *preparations) ready(s slots.Slot) bool { return p.m.o.SlotCache == nil || p.done[s] }

// keep keeps the objects of exactly the wanted slots.
func (p *preparations) keep(ctx context.Context, wanted []slots.Slot) {
	slotCache := p.m.o.SlotCache
	if slotCache == nil {
		return
	}
	var added, dropped []slots.Slot
	for _, s := range wanted {
		if _, ok := p.done[s]; !ok {
			p.done[s] = false
			added = append(added, s)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(p.done)) {
		if !slices.Contains(wanted, s) {
			delete(p.done, s)
			dropped = append(dropped, s)
		}
	}
	if dropped != nil {
		slotCache.Remove(dropped...)
	}
	if added != nil {
		slotCache.Add(added...)
		p.await(ctx, added, 0)
	}
	p.warn(ctx)
}

// slowSync is how long a SlotCache may need before the log mentions it.
const slowSync = 30 * time.Second

// warn logs that the SlotCache is slow. Another member may serve the slots meanwhile.
func (p *preparations) warn(ctx context.Context) {
	missing := 0
	for _, done := range p.done {
		if !done {
			missing++
		}
	}
	switch {
	case missing == 0:
		p.asked = time.Time{}
	case p.asked.IsZero():
		p.asked = time.Now()
	case time.Since(p.asked) > slowSync:
		p.m.failing(ctx, "the objects of new slots are not there yet; this member cannot serve the slots", "slots", missing, "for", time.Since(p.asked).Round(time.Second).String())
	}
}

func (p *preparations) await(ctx context.Context, all []slots.Slot, after time.Duration) {
	p.waiting.Go(func() {
		_ = run.Sleep(ctx, after)
		n := preparation{all, p.m.o.SlotCache.WaitForSync(ctx, all...)}
		select {
		case p.news <- n:
		case <-ctx.Done():
		}
	})
}

// note records a result. After an error, it waits again: a slot may have been removed meanwhile.
func (p *preparations) note(ctx context.Context, n preparation) {
	var left []slots.Slot
	for _, s := range n.of {
		if done, ok := p.done[s]; ok && !done {
			p.done[s] = n.err == nil
			left = append(left, s)
		}
	}
	switch {
	case n.err == nil || left == nil || ctx.Err() != nil:
	case len(left) < len(n.of):
		p.await(ctx, left, 0)
	default:
		p.m.log.Warn("the objects of new slots are not there yet; their keys wait", "slots", len(left), "err", n.err)
		p.await(ctx, left, pollInterval)
	}
}
