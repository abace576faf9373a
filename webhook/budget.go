// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// bodyBudget is for all bodies above smallBody. Two of maxBody leave 2 MiB for other requests.
	bodyBudget, smallBody = 16 << 20, 64 << 10
	// objectBudget is for all decoded objects above smallObject, with the copies of their text.
	objectBudget, smallObject = 64 << 20, 256 << 10
	// patience is how long a client may send a body, or read an answer, while other requests wait.
	patience = 3 * time.Second
)

var errBusy = failuref(http.StatusServiceUnavailable, "too many large requests are in flight; try again")

// budget limits the bytes of all claims together, so that memory stays bounded whatever clients
// send.
type budget struct {
	small int64 // a claim up to small is free, and never waits

	mu      sync.Mutex // guards what follows, and the claims
	free    int64
	waiting []*claim // the oldest first
	holding map[*claim]struct{}
}

func newBudget(size, small int64) *budget {
	return &budget{small: small, free: size, holding: map[*claim]struct{}{}}
}

// claim is a part of a budget. A nil claim is a free one.
type claim struct {
	budget *budget
	size   int64
	turn   chan struct{} // closed when the budget holds the claim

	cut       func() // ends a wait for the client; nil while the holder waits for none
	since     time.Time
	displaced bool // cut was called
}

// take waits until size bytes are free, or ctx ends. With cut, the holder begins with a wait for
// its client. Call give for the claim.
func (b *budget) take(ctx context.Context, size int64, cut func()) (*claim, error) {
	if size <= b.small {
		return nil, nil //nolint:nilnil // a free claim
	}
	c := &claim{budget: b, size: size, turn: make(chan struct{}), cut: cut}
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	b.grantLocked()
	b.mu.Unlock()
	tick := time.NewTicker(patience / 4)
	defer tick.Stop()
	for {
		select {
		case <-c.turn:
			return c, nil
		case <-ctx.Done():
			c.give()
			return nil, errBusy
		case <-tick.C:
			b.displace()
		}
	}
}

// grantLocked serves small claims first. Otherwise a few large ones could hold up all requests of
// the API server, whose objects are mostly small.
func (b *budget) grantLocked() {
	for len(b.waiting) > 0 {
		first := slices.MinFunc(b.waiting, func(c, d *claim) int { return cmp.Compare(c.size, d.size) })
		if first.size > b.free {
			return
		}
		b.forgetLocked(first)
		b.free -= first.size
		b.holding[first] = struct{}{}
		first.since = time.Now()
		close(first.turn)
	}
}

func (b *budget) forgetLocked(c *claim) {
	b.waiting = slices.DeleteFunc(b.waiting, func(d *claim) bool { return c == d })
}

// displace cuts off the client that has kept its holder waiting longest.
func (b *budget) displace() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var slowest *claim
	for c := range b.holding {
		if c.cut != nil && !c.displaced && time.Since(c.since) >= patience && (slowest == nil || c.since.Before(slowest.since)) {
			slowest = c
		}
	}
	if slowest != nil {
		slowest.displaced = true
		slowest.cut()
	}
}

// wait begins a wait for the client. If cut is nil, it ends one instead, and returns an error if
// the client was cut off.
func (c *claim) wait(cut func()) error {
	if c == nil {
		return nil
	}
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.cut, c.since = cut, time.Now()
	if c.displaced {
		return errBusy
	}
	return nil
}

// give ends the claim.
func (c *claim) give() {
	if c == nil {
		return
	}
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetLocked(c)
	if _, ok := b.holding[c]; ok {
		delete(b.holding, c)
		b.free += c.size
	}
	b.grantLocked()
}

// reserve takes a claim for decoded objects.
func (w *Webhooks) reserve(ctx context.Context, size int64) (*claim, error) {
	if size > objectBudget {
		return nil, failuref(http.StatusRequestEntityTooLarge, "the object needs about %d MiB of memory; the limit is %d MiB, so limit its lists in the CustomResourceDefinition",
			size>>20, objectBudget>>20)
	}
	return w.objects.take(ctx, size, nil)
}
