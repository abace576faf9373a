// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
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
)

// conn is a connection.
type conn struct {
	net.Conn

	from      netip.Prefix // the client: its IPv4 address, or its IPv6 /64
	handlers  int          // running: with HTTP/2 there may be many
	waiting   int          // of them, those that wait for the client
	since     time.Time    // when it was accepted, or its last handler began or returned
	displaced bool

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

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(by time.Time) error {
	return errors.Join(c.SetReadDeadline(by), c.SetWriteDeadline(by))
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
	c, _ := nc.(*conn) // else none of ours
	return c
}

type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connOf(nc))
}
