// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/slots"
)

// Keeper holds the objects of this member's slots, and no others. *cache.Slots is one. All methods
// must be safe for concurrent use.
type Keeper interface {
	// Add begins to keep the objects of more slots.
	Add(slots ...uint8)
	// Remove drops the objects of slots.
	Remove(slots ...uint8)
	// WaitForSync returns nil when the objects of the slots are there, or an error if ctx ends
	// before.
	WaitForSync(ctx context.Context, slots ...uint8) error
}

// preparations are the slots whose objects Options.Keeper holds, or will. Without a Keeper, every
// slot is prepared. Only the life's goroutine uses it.
type preparations struct {
	keeper Keeper
	done   map[slots.Slot]bool // false: the Keeper has not all objects yet
	news   chan preparation
}

// preparation is the result of waiting for the objects of slots.
type preparation struct {
	of  []slots.Slot
	err error
}

func newPreparations(k Keeper) preparations {
	return preparations{keeper: k, done: map[slots.Slot]bool{}, news: make(chan preparation)}
}

func (p *preparations) ready(s slots.Slot) bool { return p.keeper == nil || p.done[s] }

// wanted returns the slots that this member owns or adopts, and those whose work still runs.
func (l *life) wanted(a *slots.Assignment) (all []slots.Slot) {
	for i := range slots.Slots {
		s := slots.Slot(i) //nolint:gosec // less than Slots
		if of := a.Slot(s); of.Owner == l.id || of.To == l.id || l.tenancies[s] != nil {
			all = append(all, s)
		}
	}
	return all
}

// prepare keeps the objects of exactly the wanted slots.
func (l *life) prepare(ctx context.Context, wanted []slots.Slot) {
	p := &l.prepared
	if p.keeper == nil {
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
		p.keeper.Remove(dropped...)
	}
	if added != nil {
		p.keeper.Add(added...)
		l.await(ctx, added, 0)
	}
}

func (l *life) await(ctx context.Context, all []slots.Slot, after time.Duration) {
	p := &l.prepared
	l.awaiting.Go(func() {
		_ = run.Sleep(ctx, after)
		n := preparation{all, p.keeper.WaitForSync(ctx, all...)}
		select {
		case p.news <- n:
		case <-ctx.Done():
		}
	})
}

// note records a result. After an error, it waits again: a slot may have been removed meanwhile.
func (l *life) note(ctx context.Context, n preparation) {
	var left []slots.Slot
	for _, s := range n.of {
		if done, ok := l.prepared.done[s]; ok && !done {
			l.prepared.done[s] = n.err == nil
			left = append(left, s)
		}
	}
	switch {
	case n.err == nil || left == nil || ctx.Err() != nil:
	case len(left) < len(n.of):
		l.await(ctx, left, 0)
	default:
		l.log.Warn("the objects of new slots are not there yet; their keys wait", "slots", len(left), "err", n.err)
		l.await(ctx, left, patience)
	}
}
