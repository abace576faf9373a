// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"
)

const (
	// maxConns is a fraction of the smallest common limit of file descriptors, 1024.
	maxConns = 250
	// maxWaiting is how many further connections may wait for the place of another one.
	maxWaiting = 250
	// young is how long an idle connection is not displaced by one of the same client. It is enough
	// for a handshake and a request.
	young = time.Second
	// placeEvery is how often the first waiting connection of a client looks for a place.
	placeEvery = 10 * time.Millisecond
)

// wait is of a connection that has no place yet. Its first Read waits for one.
type wait struct {
	first chan struct{} // closed when no other connection of the client waits longer
	over  chan struct{} // closed when the connection is closed, or at a stop
}

// admit leaves it to the caller to close displaced. If all places are taken, c waits for one. If
// too many wait, one of them is displaced.
func (t *traffic) admit(raw net.Conn) (c, displaced *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c = &conn{Conn: raw, traffic: t, from: clientOf(raw.RemoteAddr().String()), since: time.Now()}
	before := t.nextLocked(c.from) != nil
	placed := false
	if !before {
		displaced, placed = t.placeLocked(c)
	}
	if !placed {
		if len(t.waiting) >= maxWaiting {
			displaced = t.crowdedLocked()
			t.leaveLocked(displaced)
			before = t.nextLocked(c.from) != nil
		}
		c.wait = &wait{make(chan struct{}), make(chan struct{})}
		if !before {
			close(c.wait.first)
		}
		if t.stopping {
			c.stopWaiting()
		}
		t.waiting = append(t.waiting, c)
	}
	t.conns++
	return c, displaced
}

// placeLocked reports whether there is a place for c. The displaced connection had it before.
func (t *traffic) placeLocked(c *conn) (displaced *conn, ok bool) {
	if len(t.open) >= maxConns {
		if displaced = t.victimLocked(c.from); displaced == nil {
			return nil, false
		}
		delete(t.open, displaced)
	}
	c.since = time.Now()
	t.open[c] = struct{}{}
	return displaced, true
}

// victimLocked returns the connection that one of a client displaces, or nil: an idle one, or one
// whose handlers all wait for their client, if none began or returned within a second. An idle one
// that is young is displaced only by a client with fewer connections. A client with more displaces
// none: its own are all young while they come again and again.
func (t *traffic) victimLocked(by netip.Prefix) (victim *conn) {
	of := map[netip.Prefix]int{}
	for c := range t.open {
		of[c.from]++
	}
	for c := range t.open {
		recent := time.Since(c.since) < young
		switch {
		case of[c.from] < of[by], c.handlers > c.waiting, recent && (c.handlers > 0 || of[c.from] == of[by]):
		case victim == nil, c.before(victim, of):
			victim = c
		}
	}
	return victim
}

// crowdedLocked returns any waiting connection of the clients with the most. An order would let one
// client keep others from waiting.
func (t *traffic) crowdedLocked() *conn {
	of, most := map[netip.Prefix]int{}, 0
	for _, c := range t.waiting {
		of[c.from]++
		most = max(most, of[c.from])
	}
	crowd := slices.DeleteFunc(slices.Clone(t.waiting), func(c *conn) bool { return of[c.from] < most })
	return crowd[rand.IntN(len(crowd))] //nolint:gosec // no secret
}

func (t *traffic) nextLocked(from netip.Prefix) *conn {
	i := slices.IndexFunc(t.waiting, func(c *conn) bool { return c.from == from })
	if i < 0 {
		return nil
	}
	return t.waiting[i]
}

// awaitPlace returns an error if c is closed before, or has waited as long as for a header.
func (t *traffic) awaitPlace(c *conn) error {
	defer t.leave(c)
	late := time.After(time.Until(c.since.Add(headerTimeout)))
	var again <-chan time.Time
	for next := c.wait.first; ; next = nil {
		select {
		case <-next:
		case <-again:
		case <-c.wait.over:
			return net.ErrClosed
		case <-late:
			return os.ErrDeadlineExceeded
		}
		t.mu.Lock()
		displaced, ok := t.placeLocked(c)
		t.mu.Unlock()
		if displaced != nil {
			_ = displaced.Close()
		}
		if ok {
			return nil
		}
		again = time.After(placeEvery)
	}
}

func (t *traffic) leave(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked(c)
}

// leaveLocked lets the next connection of the client look for a place.
func (t *traffic) leaveLocked(c *conn) {
	i := slices.Index(t.waiting, c)
	if i < 0 {
		return
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if next := t.nextLocked(c.from); next != nil {
		select {
		case <-next.wait.first:
		default:
			close(next.wait.first)
		}
	}
}
