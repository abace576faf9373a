// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// from is a connection of a client.
type from struct {
	net.Conn

	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

const apiServer, other = "192.0.2.1", "192.0.2.2"

// TestPlace_OfAClientWithFewerConnections: a client whose own connections are all young does not
// displace the connection of an API server, which takes longer for its handshake.
func TestPlace_OfAClientWithFewerConnections(t *testing.T) {
	traffic := newTraffic(nil)
	slow, _ := traffic.admit(from{ip: apiServer})
	slow.since = time.Now().Add(-2 * young)
	for range maxConns - 1 {
		traffic.admit(from{ip: other})
	}
	if c, displaced := traffic.admit(from{ip: other}); displaced != nil || c.wait == nil {
		t.Errorf("a connection waits: %t; it displaced another: %t", c.wait != nil, displaced != nil)
	}
	if c, displaced := traffic.admit(from{ip: apiServer}); c.wait != nil || displaced == nil || displaced == slow {
		t.Error("another connection of the API server has no place")
	}
}

// TestPlace_ToWaitOfAClientWithFewerConnections: many connections displace none of another client
// that waits.
func TestPlace_ToWaitOfAClientWithFewerConnections(t *testing.T) {
	traffic := newTraffic(nil)
	for range maxConns {
		c, _ := traffic.admit(from{ip: other})
		c.handlers = 1 // busy
	}
	waits, _ := traffic.admit(from{ip: apiServer})
	for n := range 10 * maxWaiting {
		if _, displaced := traffic.admit(from{ip: other}); displaced == waits {
			t.Fatalf("connection %d displaced the API server's", n+1)
		}
	}
	testkit.Equal(t, len(traffic.waiting), maxWaiting)
}
