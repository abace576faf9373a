// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// bound is how many dials may be in progress at once. With more connections, as many as there
	// are. It was measured: see designs/0006-client.md.
	bound = 2
	// patience is how long a dial counts. A server without an answer must not hold up the others.
	patience = 300 * time.Millisecond
	// grace is how long waiting requests have to use a new connection. Then one may dial.
	grace = 20 * time.Millisecond
)

// dials bounds the dials of a transport.
//
// net/http starts a dial for each request that finds no connection. Many of them wait here until
// their request has a connection that another one dialed. Connections never count against the
// bound, so full ones hold up no dial, even with a thousand watches. Their number may at most
// double at once. Over HTTP/1.1, where each request needs its own, there is no bound.
type dials struct {
	mu      sync.Mutex // guards the following
	bounded bool
	open    map[*conn]struct{} // connections, and dials in progress
	young   int                // dials that count
	waiting []*turn            // the first may be over
}

// want is the need of a request for a connection. A request may need several in turn, because
// others have filled the first one.
type want struct {
	wanting atomic.Bool // no connection yet
	dialing atomic.Bool // a dial has begun

	turns []*turn // guarded by the dials' mutex
}

// turn is a dial that waits.
type turn struct {
	ready chan struct{} // closed when the turn is over
	conn  *conn         // to dial, or nil: the request needs it no more
	over  bool          // guarded by the dials' mutex
}

// errUnneeded is the result of a dial that net/http does not look at, because its request has a
// connection or has ended.
var errUnneeded = errors.New("the connection is not needed any more")

// begin waits until w may dial. A nil want may at once.
func (d *dials) begin(ctx context.Context, w *want) (*conn, error) {
	if w == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.beginLocked(), nil
	}
	w.dialing.Store(true)
	c, t := d.beginOrWait(w)
	if t == nil {
		return c, nil
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		d.endLocked(t, nil) // or it has a connection already
	}
	if t.conn == nil {
		return nil, errUnneeded
	}
	return t.conn, nil
}

func (d *dials) beginOrWait(w *want) (*conn, *turn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &turn{ready: make(chan struct{})}
	switch {
	case !w.wanting.Load():
		d.endLocked(t, nil)
	case d.mayLocked():
		return d.beginLocked(), nil
	default:
		d.waiting = append(d.waiting, t)
		w.turns = append(w.turns, t)
	}
	return nil, t
}

func (d *dials) mayLocked() bool {
	return !d.bounded || d.young < max(bound, len(d.open)-d.young)
}

func (d *dials) beginLocked() *conn {
	c := &conn{of: d, young: true}
	d.open[c] = struct{}{}
	d.young++
	c.timer = time.AfterFunc(patience, func() { d.aged(c) })
	return c
}

func (d *dials) endLocked(t *turn, c *conn) {
	if !t.over {
		t.over, t.conn = true, c
		close(t.ready)
	}
}

// wants notes that a request looks for a connection: the first one, or another one because the last
// was full.
func (d *dials) wants(w *want) {
	d.satisfy(w)
	w.wanting.Store(true)
}

// satisfy ends the dials that w waits for. Their request has a connection, or has ended.
func (d *dials) satisfy(w *want) {
	w.wanting.Store(false)
	if !w.dialing.Load() { // begin sets it before it reads the other
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range w.turns {
		d.endLocked(t, nil)
	}
	w.turns = nil
}

// nextLocked gives turns to those who wait.
func (d *dials) nextLocked() {
	for len(d.waiting) > 0 && (d.waiting[0].over || d.mayLocked()) {
		t := d.waiting[0]
		d.waiting[0], d.waiting = nil, d.waiting[1:]
		if !t.over {
			d.endLocked(t, d.beginLocked())
		}
	}
}

// unbound notes that a connection serves one request at a time.
func (d *dials) unbound() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bounded = false
	d.nextLocked()
}

func (d *dials) aged(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ageLocked(c)
	d.nextLocked()
}

func (d *dials) ageLocked(c *conn) (was bool) {
	was, c.young = c.young, false
	if was {
		d.young--
	}
	return was
}

// used notes that a request has a connection. Those who wait have been offered it, too.
func (d *dials) used(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ageLocked(c) {
		c.timer.Reset(grace)
	}
}

// closed notes the end of a connection. net/http also closes one that came too late for the
// requests.
func (d *dials) closed(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
	if d.ageLocked(c) {
		c.timer.Reset(grace)
	}
}

// failed notes that a dial has no connection.
func (d *dials) failed(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.timer.Stop()
	delete(d.open, c)
	d.ageLocked(c)
	d.nextLocked()
}

// some reports whether a connection or a dial is left.
func (d *dials) some() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open) > 0
}

// conn is a connection. It notes its end.
type conn struct {
	net.Conn
	of    *dials
	timer *time.Timer // ends the youth, or lets the next one dial
	young bool        // guarded by the dials' mutex: it counts
	taken atomic.Bool // by a request, at least once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.closed(c)
	return c.Conn.Close()
}
