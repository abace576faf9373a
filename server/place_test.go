// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
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
	"time"

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

// besiege keeps n connections of an address open, until stop is called.
func besiege(t *testing.T, n int, from, at string, attack func(net.Conn)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	var all, opened sync.WaitGroup
	opened.Add(n)
	for range n {
		first := sync.OnceFunc(opened.Done)
		all.Go(func() {
			defer first()
			for ctx.Err() == nil {
				raw, err := d.DialContext(ctx, "tcp", at)
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
				if l, err := net.Listen("tcp", from+":0"); err != nil {
					t.Skip("this system has only one loopback address")
				} else {
					l.Close()
				}
				withstand(t, from, attack)
			})
		}
	}
}

func withstand(t *testing.T, from string, attack func(net.Conn)) {
	s := open(t, server.Options{})
	if err := s.Handle("POST /review", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })); err != nil {
		t.Fatal(err)
	}
	stop, cancel, result := serve(t, s)
	defer cancel()
	end := besiege(t, 260, from, address(s), attack)
	for _, each := range []bool{false, true} {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // self-signed
			DialContext:     dialBusy, ForceAttemptHTTP2: true, DisableKeepAlives: each,
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
	end()
	stop()
	if err := result(); err != nil {
		t.Error(err)
	}
}

// dialBusy connects like a busy API server, which takes a moment for each part of a handshake.
func dialBusy(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return busy{c}, err
}

type busy struct{ net.Conn }

func (b busy) Write(p []byte) (int, error) {
	<-time.After(50 * time.Millisecond)
	return b.Conn.Write(p)
}

func review(ctx context.Context, t http.RoundTripper, at string) error {
	// For slow machines. An API server waits for 10 s.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
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
