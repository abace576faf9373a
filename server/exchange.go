// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// moment is how long a stop waits for slow clients after the work context has ended.
	moment = 250 * time.Millisecond
	// slowLimit is how long a handler may wait for its client in total, from the start of a stop.
	slowLimit = 2 * moment

	writeTimeout  = 30 * time.Second       // for the client to read maxPart
	maxPart       = 64 << 10               // bytes of an answer
	bodyTimeout   = 30 * time.Second       // for the client to send the body
	unreadTimeout = 500 * time.Millisecond // for the rest of a body that the handler left unread
)

// exchange is a request with its answer. Unlike http.Server's ReadTimeout and WriteTimeout, it
// limits how long the handler waits for its client, not how long it runs.
type exchange struct {
	traffic *traffic
	conn    *conn
	http2   bool
	control *http.ResponseController
	begun   bool // only for the handler's goroutine

	// The traffic's mutex guards these fields.
	unread bool
	over   bool          // returned or hijacked the connection
	waited time.Duration // for the client, since the start of the stop
	waits  int           // current reads and writes
	since  time.Time     // of the first of them, or the stop
}

func (x *exchange) startLocked(r *http.Request) {
	if !x.http2 {
		_ = x.control.SetWriteDeadline(time.Time{}) // of the previous request on this connection
	}
	if r.Body != nil && r.Body != http.NoBody {
		x.unread = true
		_ = x.control.SetReadDeadline(time.Now().Add(bodyTimeout))
		r.Body = &body{r.Body, x}
	}
}

// enter ignores errors, as leave does: a connection may not support deadlines.
func (x *exchange) enter(write bool) {
	x.traffic.mu.Lock()
	defer x.traffic.mu.Unlock()
	x.conn.waiting++
	now := time.Now()
	if x.waits++; x.waits == 1 {
		x.since = now
	}
	switch {
	case x.over: // the connection belongs to the handler
	case x.traffic.stopping:
		x.limitLocked(slowLimit - x.waited - now.Sub(x.since))
	case write:
		_ = x.control.SetWriteDeadline(now.Add(writeTimeout))
	}
}

func (x *exchange) leave(write bool) {
	x.traffic.mu.Lock()
	defer x.traffic.mu.Unlock()
	x.conn.waiting--
	if x.waits--; x.waits == 0 && x.traffic.stopping {
		x.waited += time.Since(x.since)
		// A deadline would end the request while the handler does something else.
		if !x.over && x.waited < slowLimit {
			_ = x.control.SetReadDeadline(time.Time{})
			_ = x.control.SetWriteDeadline(time.Time{})
		}
	}
	// Here, too: with HTTP/2, a write deadline ends the stream.
	if write && x.http2 && !x.traffic.stopping && !x.over {
		_ = x.control.SetWriteDeadline(time.Time{})
	}
}

func (x *exchange) limitLocked(left time.Duration) {
	by := time.Now().Add(max(left, 0))
	_ = x.control.SetReadDeadline(by)
	_ = x.control.SetWriteDeadline(by)
}

func (x *exchange) hurryLocked() {
	x.since = time.Now()
	if x.waits > 0 && !x.over {
		x.limitLocked(slowLimit)
	}
}

// finish aborts an answer that a stop cut short.
func (x *exchange) finish() {
	x.traffic.mu.Lock()
	defer x.traffic.mu.Unlock()
	switch {
	case x.over:
	case x.traffic.stopping && x.waited >= slowLimit:
		panic(http.ErrAbortHandler)
	default:
		_ = x.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if x.unread {
			_ = x.control.SetReadDeadline(time.Now().Add(unreadTimeout))
		}
	}
}

// ended clears the deadline after the whole body was read: it would end the context of the request.
func (x *exchange) ended() {
	x.traffic.mu.Lock()
	defer x.traffic.mu.Unlock()
	if x.unread && !x.over {
		x.unread = false
		_ = x.control.SetReadDeadline(time.Time{})
	}
}

type body struct {
	io.ReadCloser
	x *exchange
}

func (b *body) Read(p []byte) (int, error) {
	b.x.enter(false)
	n, err := b.ReadCloser.Read(p)
	b.x.leave(false)
	if err == io.EOF {
		b.x.ended()
	}
	return n, err
}

type answer struct {
	http.ResponseWriter
	x *exchange
}

func (a answer) WriteHeader(status int) {
	a.x.begun = a.x.begun || status >= http.StatusOK
	a.ResponseWriter.WriteHeader(status)
}

func (a answer) Write(p []byte) (written int, err error) {
	a.x.begun = true
	for {
		part := p[written:min(len(p), written+maxPart)]
		a.x.enter(true)
		n, err := a.ResponseWriter.Write(part)
		a.x.leave(true)
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}

// FlushError is for http.ResponseController.
func (a answer) FlushError() error {
	a.x.begun = true
	a.x.enter(true)
	defer a.x.leave(true)
	return a.x.control.Flush()
}

func (a answer) Flush() { _ = a.FlushError() }

func (a answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.x.begun = true
	c, rw, err := a.x.control.Hijack()
	a.x.traffic.mu.Lock()
	defer a.x.traffic.mu.Unlock()
	a.x.over = a.x.over || err == nil
	return c, rw, err
}

func (a answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// conn is a connection. The lock of traffic guards its fields, except for the atomic ones.
type conn struct {
	net.Conn

	traffic *traffic
	wait    *wait // nil if it had a place at once; never changes
	close   sync.Once

	from     netip.Prefix
	served   bool      // a handler has begun
	handlers int       // with HTTP/2 there may be many
	waiting  int       // handlers that wait for the client
	since    time.Time // Accept, or when the last handler began or returned

	placed   atomic.Bool // has waited
	bounded  atomic.Bool // has a write deadline
	final    atomic.Bool // must not change any more
	hijacked atomic.Bool
	broken   atomic.Bool // a write has failed
}

// Read first waits for a place.
func (c *conn) Read(p []byte) (int, error) {
	if c.wait != nil && !c.placed.Load() {
		if err := c.traffic.awaitPlace(c); err != nil {
			return 0, err
		}
		c.placed.Store(true)
	}
	return c.Conn.Read(p)
}

// Close also ends the wait for a place.
func (c *conn) Close() error {
	c.stopWaiting()
	return c.Conn.Close()
}

func (c *conn) stopWaiting() {
	if c.wait != nil {
		c.close.Do(func() { close(c.wait.over) })
	}
}

// Write limits how long http.Server waits for a slow client when it writes an answer of its own,
// such as a 400. After a failed write, the close message of TLS does not wait for the client.
func (c *conn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, net.ErrClosed
	}
	if !c.bounded.Load() && !c.hijacked.Load() {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	n, err := c.Conn.Write(p)
	if err != nil && !c.hijacked.Load() {
		c.broken.Store(true)
	}
	return n, err
}

func (c *conn) SetWriteDeadline(by time.Time) error {
	if c.final.Load() {
		return nil
	}
	c.bounded.Store(!by.IsZero())
	return c.Conn.SetWriteDeadline(by)
}

// hurry sets the last write deadline, which includes TLS's close message.
func (c *conn) hurry() {
	_ = c.SetWriteDeadline(time.Now().Add(slowLimit))
	c.final.Store(true)
}

// before reports whether c is displaced before d: clients with more connections first, idle
// connections first, those without a request first, older ones first.
func (c *conn) before(d *conn, of map[netip.Prefix]int) bool {
	switch {
	case of[c.from] != of[d.from]:
		return of[c.from] > of[d.from]
	case (c.handlers == 0) != (d.handlers == 0):
		return c.handlers == 0
	case c.served != d.served:
		return d.served
	default:
		return c.since.Before(d.since)
	}
}

// clientOf returns a client's IPv4 address or, because a host has many addresses, its IPv6 /64. All
// invalid addresses count as one client.
func clientOf(address string) netip.Prefix {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	client, _ := ip.Prefix(bits) // fits
	return client
}

func connOf(nc net.Conn) *conn {
	if tls, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = tls.NetConn()
	}
	return nc.(*conn) //nolint:forcetypeassert // from traffic.Accept
}

type connKey struct{}
