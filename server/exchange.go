// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// moment is how long a stop waits for slow clients once the work of their requests has ended.
	moment = 250 * time.Millisecond
	// slowLimit is how long in all, once the server stops, the handler of a request may wait for its
	// client.
	slowLimit = 2 * moment
	// writeTimeout is how long a client may take to read a part of the answer.
	writeTimeout = 30 * time.Second
	// bodyTimeout is how long a client may take to send a request's body.
	bodyTimeout = 30 * time.Second
	// maxPart is how many bytes of an answer a client has writeTimeout for.
	maxPart = 64 << 10
	// unreadTimeout is how long the server waits for the rest of a body that its handler has not read.
	unreadTimeout = 500 * time.Millisecond
)

// exchange is a request and its answer. It bounds how long the handler waits for its client;
// http.Server's ReadTimeout and WriteTimeout would bound how long the handler runs.
type exchange struct {
	conn    *conn
	http2   bool
	control *http.ResponseController
	begun   bool // a part of the answer was written, by the handler's goroutine

	mu       *sync.Mutex   // the traffic's, guards what follows
	stopping *bool         // the traffic's: what follows counts
	unread   bool          // of the body, something is
	over     bool          // the handler has returned, or has taken over the connection
	waited   time.Duration // for the client
	waits    int           // reads and writes under way
	since    time.Time     // when the first of them began, or the stop
}

// startLocked watches the body of the request.
func (x *exchange) startLocked(r *http.Request) {
	if !x.http2 {
		_ = x.control.SetWriteDeadline(time.Time{}) // the one of the request before on this connection
	}
	if r.Body != nil && r.Body != http.NoBody {
		x.unread = true
		_ = x.control.SetReadDeadline(time.Now().Add(bodyTimeout))
		r.Body = &body{r.Body, x}
	}
}

// enter begins to wait for the client, and leave ends it. A connection may support no deadlines.
func (x *exchange) enter(write bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.conn.waiting++
	now := time.Now()
	if x.waits++; x.waits == 1 {
		x.since = now
	}
	switch {
	case x.over: // the connection is the handler's
	case *x.stopping:
		x.limitLocked(slowLimit - x.waited - now.Sub(x.since))
	case write:
		_ = x.control.SetWriteDeadline(now.Add(writeTimeout))
	}
}

func (x *exchange) leave(write bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.conn.waiting--
	if x.waits--; x.waits == 0 && *x.stopping {
		x.waited += time.Since(x.since)
		if !x.over && x.waited < slowLimit { // it would end the request while the handler does something else
			_ = x.control.SetReadDeadline(time.Time{})
			_ = x.control.SetWriteDeadline(time.Time{})
		}
	}
	if write && x.http2 && !*x.stopping && !x.over { // it would end the stream while the handler does something else
		_ = x.control.SetWriteDeadline(time.Time{})
	}
}

// limitLocked ends reads and writes when the client has had its time.
func (x *exchange) limitLocked(left time.Duration) {
	by := time.Now().Add(max(left, 0))
	_ = x.control.SetReadDeadline(by)
	_ = x.control.SetWriteDeadline(by)
}

// hurryLocked bounds how long the handler may wait for its client from now on.
func (x *exchange) hurryLocked() {
	x.since = time.Now()
	if x.waits > 0 && !x.over {
		x.limitLocked(slowLimit)
	}
}

// finish bounds how long the client has for what it has not read and sent when the handler has
// returned. It aborts an answer that a stop cut short.
func (x *exchange) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.over:
	case *x.stopping && x.waited >= slowLimit:
		panic(http.ErrAbortHandler)
	default:
		_ = x.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if x.unread {
			_ = x.control.SetReadDeadline(time.Now().Add(unreadTimeout))
		}
	}
}

// ended notes that the whole body was read. The deadline would otherwise end the request's context.
func (x *exchange) ended() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unread && !x.over {
		x.unread = false
		_ = x.control.SetReadDeadline(time.Time{})
	}
}

// body is that of a request.
type body struct {
	io.ReadCloser
	x *exchange
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.x.enter(false)
	n, err := b.ReadCloser.Read(p)
	b.x.leave(false)
	if err == io.EOF {
		b.x.ended()
	}
	return n, err
}

// answer is a response writer that waits for the client for a bounded time only.
type answer struct {
	http.ResponseWriter
	x *exchange
}

// WriteHeader implements http.ResponseWriter.
func (a answer) WriteHeader(status int) {
	a.x.begun = a.x.begun || status >= http.StatusOK
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
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

// Flush implements http.Flusher.
func (a answer) Flush() { _ = a.FlushError() }

// Hijack implements http.Hijacker.
func (a answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.x.begun = true
	c, rw, err := a.x.control.Hijack()
	a.x.mu.Lock()
	defer a.x.mu.Unlock()
	a.x.over = a.x.over || err == nil
	return c, rw, err
}

// Unwrap is for http.ResponseController.
func (a answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// conn is a connection.
type conn struct {
	net.Conn

	from     netip.Prefix // the client: its IPv4 address, or its IPv6 /64
	handlers int          // running: with HTTP/2 there may be many
	waiting  int          // of them, those that wait for the client
	since    time.Time    // when it was accepted, or its last handler began or returned

	bounded  atomic.Bool // it has a deadline for writes
	final    atomic.Bool // that is the last one
	hijacked atomic.Bool
	broken   atomic.Bool // a write has failed
}

// Write implements net.Conn. It bounds how long http.Server waits for the client when it writes by
// itself, such as a 400. TLS's goodbye after a failed write does not wait.
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

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(by time.Time) error {
	if c.final.Load() {
		return nil
	}
	c.bounded.Store(!by.IsZero())
	return c.Conn.SetWriteDeadline(by)
}

// hurry sets the last deadline for writes, TLS's goodbye included.
func (c *conn) hurry() {
	_ = c.SetWriteDeadline(time.Now().Add(slowLimit))
	c.final.Store(true)
}

// before reports whether c is displaced before d.
func (c *conn) before(d *conn, of map[netip.Prefix]int) bool {
	switch {
	case of[c.from] != of[d.from]:
		return of[c.from] > of[d.from]
	case (c.handlers == 0) != (d.handlers == 0):
		return c.handlers == 0
	default:
		return c.since.Before(d.since)
	}
}

// clientOf returns the client of an address: the IPv4 address or, because a host may have any number
// of them, the IPv6 /64. All strings that are no address count as one client.
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

// connOf returns the connection below TLS.
func connOf(nc net.Conn) *conn {
	if tls, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = tls.NetConn()
	}
	return nc.(*conn) //nolint:forcetypeassert // traffic accepts no others
}

type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connOf(nc))
}
