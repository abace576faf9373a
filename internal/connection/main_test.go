// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is an HTTPS server that counts its connections.
type api struct {
	*httptest.Server
	opened atomic.Int64
}

func serve(t *testing.T, streams int, h http.HandlerFunc) *api {
	t.Helper()
	a := &api{Server: httptest.NewUnstartedServer(h)}
	a.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	a.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			a.opened.Add(1)
		}
	}
	a.EnableHTTP2 = streams > 0
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func (a *api) config() *rest.Config {
	return &rest.Config{Host: a.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// connect returns the transport of a client, which the test closes.
func connect(t *testing.T, cfg *rest.Config) (http.RoundTripper, *client.Client) {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() { c.Disconnect(context.WithoutCancel(t.Context())) })
	return c.HTTPClient().Transport, c
}

func send(ctx context.Context, rt http.RoundTripper, method, url string) (status int, err error) {
	var body io.Reader = http.NoBody
	if method != http.MethodGet {
		body = bytes.NewReader(make([]byte, 2<<10))
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// barrier holds requests until a number of them is in flight.
type barrier struct {
	mu      sync.Mutex
	waiting int
	full    int
	open    chan struct{}
}

func newBarrier(n int) *barrier { return &barrier{full: n, open: make(chan struct{})} }

func (b *barrier) wait(ctx context.Context) {
	b.mu.Lock()
	if b.waiting++; b.waiting == b.full {
		close(b.open)
	}
	b.mu.Unlock()
	select {
	case <-b.open:
	case <-ctx.Done():
	}
}

// all sends requests at once, and fails if one does not succeed.
func all(t *testing.T, n int, request func(i int) (int, error)) {
	t.Helper()
	var done sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := range n {
		done.Go(func() {
			if status, err := request(i); err != nil || status != http.StatusOK {
				err = fmt.Errorf("request %d: status %d, %v", i, status, err)
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	done.Wait()
	if err := failed.Load(); err != nil {
		t.Error(*err)
	}
}
