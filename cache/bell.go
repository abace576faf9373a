// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"slices"
	"sync"
)

// bell wakes those who wait for a change. The zero value is ready for use.
type bell struct {
	mu    sync.Mutex // guards what follows
	next  chan struct{}
	calls map[*func()]struct{}
}

// wait returns a channel that is closed at the next ring. Take it, look at what may have changed, then
// wait for it.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// listen has f called at each ring, off the lock, until cancel is called; f may be running then.
func (b *bell) listen(f func()) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[*func()]struct{}{}
	}
	b.calls[&f] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.calls, &f)
	}
}

func (b *bell) ring() {
	for _, call := range b.rung() {
		(*call)()
	}
}

func (b *bell) rung() []*func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
	return slices.Collect(maps.Keys(b.calls))
}
