// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"
)

// noise records how late this process's timers fire, as a measure of the machine's load.
type noise struct {
	mu   sync.Mutex // guards late
	late []lateness // of the last minutes, in order
}

type lateness struct {
	at time.Time
	by time.Duration
}

// listen sets a timer repeatedly, until ctx is done.
func (n *noise) listen(ctx context.Context) {
	const every, kept = 5 * time.Millisecond, 20_000
	for ctx.Err() == nil {
		due := time.Now().Add(every)
		time.Sleep(every)
		now := time.Now()
		n.mu.Lock()
		n.late = append(n.late, lateness{now, now.Sub(due)})
		n.late = n.late[max(0, len(n.late)-kept):]
		n.mu.Unlock()
	}
}

// before returns the maximum in the second before t.
func (n *noise) before(t time.Time) (most time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.late {
		if d := t.Sub(l.at); d >= 0 && d < time.Second {
			most = max(most, l.by)
		}
	}
	return most
}
