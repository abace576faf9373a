// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// A barrier in the server opens only when all requests are in flight. So none waits for the end of
// another.
func TestAllRequestsAreInFlightAtOnce(t *testing.T) {
	for name, of := range map[string]struct{ streams, requests int }{
		"100 streams": {100, 300}, "10 streams": {10, 60}, "HTTP/1.1": {0, 60},
	} {
		t.Run(name, func(t *testing.T) {
			streams, n := of.streams, of.requests
			b := newBarrier(n)
			a := serve(t, streams, func(_ http.ResponseWriter, r *http.Request) { b.wait(r.Context()) })
			rt, _ := connect(t, a.config())
			all(t, n, func(int) (int, error) { return send(t.Context(), rt, http.MethodPut, a.URL+"/api") })
			if opened := a.opened.Load(); streams == 100 && opened > 12 {
				t.Errorf("%d connections were opened for %d writes in flight; want at most 12", opened, n)
			}
		})
	}
}

func TestAThousandWatchesHoldUpNoRequest(t *testing.T) {
	const n = 1000
	b, rounds := newBarrier(n), newBarrier(300)
	ended := make(chan struct{})
	a := serve(t, 100, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			rounds.wait(r.Context())
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // of the standard library
		b.wait(r.Context())
		<-ended
	})
	rt, _ := connect(t, a.config())
	var watches sync.WaitGroup
	watches.Go(func() {
		all(t, n, func(int) (int, error) { return send(t.Context(), rt, http.MethodGet, a.URL+"/api?watch=true") })
	})
	<-b.open
	all(t, 300, func(int) (int, error) { return send(t.Context(), rt, http.MethodPut, a.URL+"/api") })
	close(ended)
	watches.Wait()
	if opened := a.opened.Load(); opened > 200 {
		t.Errorf("%d connections were opened for 1,000 watches and 300 writes", opened)
	}
}

// A dial without an answer must not hold up the others: the address may have several servers.
func TestDialsWithoutAnAnswerHoldUpNoRequest(t *testing.T) {
	const n, hung = 50, 5
	b := newBarrier(n)
	a := serve(t, 100, func(_ http.ResponseWriter, r *http.Request) { b.wait(r.Context()) })
	cfg := a.config()
	var dials atomic.Int64
	answer := make(chan struct{})
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) <= hung {
			<-answer
			return nil, errors.New("no answer")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	rt, _ := connect(t, cfg)
	var once sync.Once
	all(t, n, func(int) (int, error) {
		status, err := send(t.Context(), rt, http.MethodPut, a.URL+"/api")
		once.Do(func() { close(answer) })
		return status, err
	})
}

// Each request must fail or succeed by itself, even if all dials fail.
func TestFailedDialsHoldUpNoRequest(t *testing.T) {
	a := serve(t, 100, func(http.ResponseWriter, *http.Request) {})
	cfg := a.config()
	refused := errors.New("refused")
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, refused }
	rt, _ := connect(t, cfg)
	var done sync.WaitGroup
	for range 300 {
		done.Go(func() {
			testkit.ErrorIs(t, testkit.Err(send(t.Context(), rt, http.MethodPut, a.URL+"/api")), refused)
		})
	}
	done.Wait()
}

// Connections die while requests wait for one, before and after the TLS handshake.
func TestDyingConnectionsLoseNoRequest(t *testing.T) {
	for range 20 {
		a := serve(t, 10, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
		cfg := a.config()
		var dials atomic.Int64
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if n := dials.Add(1); err == nil && n%2 == 0 && n < 40 {
				c = &dying{Conn: c, left: int(n) * 100}
			}
			return c, err
		}
		rt, _ := connect(t, cfg)
		all(t, 200, func(int) (int, error) {
			for {
				status, err := send(t.Context(), rt, http.MethodGet, a.URL+"/api")
				if err == nil || !strings.Contains(err.Error(), "died") && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "http2") &&
					!strings.Contains(err.Error(), "closed") {
					return status, err
				}
			}
		})
	}
}

// dying is a connection that can read only a number of bytes.
type dying struct {
	net.Conn
	left int
}

func (d *dying) Read(p []byte) (int, error) {
	if d.left <= 0 {
		return 0, errors.New("the connection has died")
	}
	n, err := d.Conn.Read(p[:min(len(p), d.left)])
	d.left -= n
	return n, err
}
