// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"syscall"
)

// connections are those that a transport used and that may be open.
type connections struct {
	trace httptrace.ClientTrace // calls got

	all sync.Map // a set of net.Conn
}

func newConnections() *connections {
	c := &connections{}
	c.trace.GotConn = func(info httptrace.GotConnInfo) { c.got(info.Conn) }
	return c
}

func (c *connections) roundTrip(base http.RoundTripper, req *http.Request, traced bool) (*http.Response, error) {
	if !traced {
		return base.RoundTrip(req)
	}
	trace := c.trace // WithClientTrace adds the hooks of the context to it
	resp, err := base.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &trace)))
	if err == nil {
		resp.Request = req
	}
	return resp, err
}

// got records a connection, and forgets closed ones, so there are never many.
func (c *connections) got(conn net.Conn) {
	if _, known := c.all.Load(conn); !known {
		c.open()
		c.all.Store(conn, nil)
	}
}

// open reports whether a connection is open. It forgets the others.
func (c *connections) open() (some bool) {
	for conn := range c.all.Range {
		if closed(conn.(net.Conn)) { //nolint:forcetypeassert // got stores no other
			c.all.Delete(conn)
		} else {
			some = true
		}
	}
	return some
}

// closed reports whether this side closed a connection. A connection that is not the operating
// system's counts as closed.
func closed(conn net.Conn) bool {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	s, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}
