// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
)

// attacks are what a client does with each of its connections, until the server closes it.
var attacks = map[string]func(raw net.Conn){
	"nothing is sent": func(raw net.Conn) { await(raw) },
	"half a handshake": func(raw net.Conn) {
		_, _ = raw.Write([]byte{22, 3, 1, 2})
		await(raw)
	},
	"a handshake": func(raw net.Conn) {
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
		if c.Handshake() == nil {
			await(c)
		}
	},
	"a slow header": func(raw net.Conn) {
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
		for c.Handshake() == nil {
			if _, err := c.Write([]byte("G")); err != nil {
				return
			}
			<-time.After(100 * time.Millisecond)
		}
	},
	"one request": func(raw net.Conn) {
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
		if c.Handshake() == nil {
			_, _ = io.WriteString(c, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
			await(c)
		}
	},
}

func await(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// network is a listener of connections in memory, so that time stands still while the processor is
// busy.
type network struct {
	accept chan net.Conn
	closed chan struct{}
	close  func()
}

func newNetwork() *network {
	closed := make(chan struct{})
	return &network{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error { n.close(); return nil }

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9443} }

// dial connects from an address.
func (n *network) dial(ctx context.Context, from string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.accept <- remote{theirs, from}:
		return ours, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type remote struct {
	net.Conn

	from string
}

func (r remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(r.from), Port: 40000} }

// besiege keeps n connections of an address open, until stop is called.
func besiege(t *testing.T, n int, from string, to *network, attack func(net.Conn)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all, opened sync.WaitGroup
	opened.Add(n)
	for range n {
		first := sync.OnceFunc(opened.Done)
		all.Go(func() {
			defer first()
			for ctx.Err() == nil {
				raw, err := to.dial(ctx, from)
				if err != nil {
					continue
				}
				first()
				ended := context.AfterFunc(ctx, func() { raw.Close() })
				attack(raw)
				ended()
				raw.Close()
			}
		})
	}
	opened.Wait()
	return func() {
		cancel()
		all.Wait()
	}
}

// TestConnections_ThatComeAgainAndAgain do not make the calls of an API server fail, over a
// connection that stays or new ones, even if they have its address.
func TestConnections_ThatComeAgainAndAgain(t *testing.T) {
	for name, attack := range attacks {
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
			t.Run(name+" from "+from, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { withstand(t, from, attack) })
			})
		}
	}
}

func withstand(t *testing.T, from string, attack func(net.Conn)) {
	to := newNetwork()
	s, err := server.New(server.Options{Listener: to})
	if err == nil {
		err = s.Open(t.Context())
	}
	testkit.NoError(t, err)
	s.Handle("POST /review", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	stop, cancel, result := serve(t, s)
	defer cancel()
	end := besiege(t, 260, from, to, attack)
	var sending sync.WaitGroup
	for _, each := range []bool{false, true} {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // self-signed
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c, err := to.dial(ctx, "127.0.0.1")
				if err != nil {
					return nil, err
				}
				return newBusy(c, &sending), nil
			}, ForceAttemptHTTP2: true, DisableKeepAlives: each,
		}
		var calls sync.WaitGroup
		var failed atomic.Int32
		began := time.Now()
		for range 5 {
			calls.Go(func() {
				if err := review(t.Context(), transport, address(s)); err != nil {
					failed.Add(1)
					t.Log(err)
				}
			})
		}
		calls.Wait()
		transport.CloseIdleConnections()
		t.Logf("with a connection for each call %t: the longest took %s", each, time.Since(began))
		if n := failed.Load(); n > 0 {
			t.Errorf("with a connection for each call %t: %d of 5 calls failed", each, n)
		}
	}
	sending.Wait()
	end()
	stop()
	testkit.Equal(t, result(), nil)
}

// busy writes like a busy API server, which takes a moment for each part of a handshake. Write does
// not wait, because the HTTP/2 client holds a mutex meanwhile.
type busy struct {
	net.Conn

	parts  chan []byte
	closed context.Context
	end    context.CancelFunc
}

func newBusy(c net.Conn, sending *sync.WaitGroup) net.Conn {
	b := &busy{Conn: c, parts: make(chan []byte, 100)}
	b.closed, b.end = context.WithCancel(context.Background())
	sending.Go(b.send)
	return b
}

func (b *busy) send() {
	for {
		select {
		case p := <-b.parts:
			time.Sleep(50 * time.Millisecond)
			if _, err := b.Conn.Write(p); err != nil {
				return
			}
		case <-b.closed.Done():
			return
		}
	}
}

func (b *busy) Write(p []byte) (int, error) {
	select {
	case b.parts <- bytes.Clone(p):
		return len(p), nil
	case <-b.closed.Done():
		return 0, net.ErrClosed
	}
}

func (b *busy) Close() error {
	b.end()
	return b.Conn.Close()
}

func review(ctx context.Context, t http.RoundTripper, at string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // as an API server
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+at+"/review", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(fmt.Sprint("status ", resp.StatusCode))
	}
	return nil
}
