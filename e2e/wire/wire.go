// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire makes half-open connections to a real API server, for tests.
package wire

import (
	"net"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
)

// Wire forwards TCP connections to an API server. Its methods are safe for concurrent use.
type Wire struct {
	listener net.Listener
	to       string
	conns    sync.WaitGroup

	mu     sync.Mutex // guards the following
	ends   []net.Conn
	frozen chan struct{} // closed and replaced by freeze
}

// Start listens on a port of the loopback interface. The result is a copy of cfg that goes through
// it. Call Close at the end.
func Start(cfg *rest.Config) (*Wire, *rest.Config, error) {
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	w := &Wire{listener: l, to: u.Host, frozen: make(chan struct{})}
	w.conns.Go(w.serve)
	through := rest.CopyConfig(cfg)
	through.Host = "https://" + l.Addr().String()
	return w, through, nil
}

func (w *Wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		w.mu.Lock()
		w.ends = append(w.ends, near, far)
		frozen := w.frozen
		w.mu.Unlock()
		w.conns.Go(func() { forward(near, far, frozen) })
		w.conns.Go(func() { forward(far, near, frozen) })
	}
}

func forward(to, from net.Conn, frozen <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			return // both sockets stay open
		default:
		}
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			to.Close()
			return
		}
	}
}

// Freeze stops all existing connections: nothing gets through, and no end sees it. New ones work.
func (w *Wire) Freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.frozen)
	w.frozen = make(chan struct{})
}

// Close ends all connections.
func (w *Wire) Close() {
	w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range w.ends {
		end.Close()
	}
	w.conns.Wait()
}
