// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// balancer forwards connections to replicas in turn, like a Service.
type balancer struct {
	net.Listener

	conns sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ready []string   // addresses
	next  int
	open  map[string]int
	idle  chan struct{} // closed and replaced when a connection ends
}

func newBalancer() (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return &balancer{Listener: l, open: map[string]int{}, idle: make(chan struct{})}, err
}

// serve forwards until the listener is closed.
func (b *balancer) serve() {
	defer b.conns.Wait()
	for {
		c, err := b.Accept()
		if err != nil {
			return
		}
		b.conns.Go(func() { b.forward(c) })
	}
}

func (b *balancer) forward(near net.Conn) {
	defer near.Close()
	address := b.pick()
	if address == "" {
		return
	}
	defer b.left(address)
	far, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return
	}
	defer far.Close()
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		_, _ = io.Copy(near, far) // an error ends the connection
		_ = near.Close()
	})
	_, _ = io.Copy(far, near) // an error ends the connection
	if tcp, ok := far.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return ""
	}
	b.next++
	address := b.ready[b.next%len(b.ready)]
	b.open[address]++
	return address
}

func (b *balancer) left(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[address]--
	close(b.idle)
	b.idle = make(chan struct{})
}

func (b *balancer) add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = append(b.ready, address)
}

func (b *balancer) remove(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = slices.DeleteFunc(b.ready, func(a string) bool { return a == address })
}

// drain waits until no connection to the address is open, or until ctx ends.
func (b *balancer) drain(ctx context.Context, address string) {
	for {
		b.mu.Lock()
		open, idle := b.open[address], b.idle
		b.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}
