// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// trickler is a client that sends the start of a request, then occasional bytes. It never reads.
type trickler struct {
	head string
	tls  bool
}

// slowClients are one of each kind. /echo reads its body, /flood never stops writing, /locked
// requires a token.
func slowClients() (all []trickler) {
	const body = " HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
	for _, head := range []string{"", "GET /livez HTTP/1.1\r\nX-A: ", "POST /livez" + body, "GET /livez" + body, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"} {
		all = append(all, trickler{head: head})
	}
	for _, head := range []string{
		"", "GET /locked HTTP/1.1\r\nX-A: ", "POST /locked" + body, "POST /echo" + body, "GET /flood" + body, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
		"POST /locked HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n",
	} {
		all = append(all, trickler{head: head, tls: true})
	}
	return all
}

func (s trickler) run(conn net.Conn) {
	defer conn.Close()
	if s.tls {
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
		if err := c.Handshake(); err != nil {
			return
		}
		conn = c
	}
	_, err := io.WriteString(conn, s.head)
	for err == nil {
		time.Sleep(100 * time.Millisecond)
		_, err = conn.Write([]byte("x"))
	}
}

// slowable makes a manager with handlers that wait for their clients.
func slowable(t *testing.T, change func(*manager.Options)) (m *manager.Manager, s *handlers, health, server *wire) {
	health, server = newWire(), newWire()
	m = newManager(newAPI(), func(o *manager.Options) {
		o.Grace = 8 * time.Second
		if change != nil {
			change(o)
		}
	})
	addHealth(m, serverOptions{Listener: health})
	s = addServer(m, serverOptions{Listener: server})
	s.Handle("/locked", s.Authorize(http.NotFoundHandler()))
	s.Handle("/echo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	s.Handle("/flood", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, err := w.Write(make([]byte, 1<<20)); err == nil; _, err = w.Write(make([]byte, 1<<20)) {
		}
	}))
	return m, s, health, server
}

func TestM3_SlowClientsHoldNoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, health, server := slowable(t, nil)
		var last time.Time // end of the last work
		m.AddLeaderOnly("work", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			last = time.Now()
			return nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		var clients sync.WaitGroup
		kinds := slowClients()
		for i := range 100 {
			kind, w := kinds[i%len(kinds)], health
			if kind.tls {
				w = server
			}
			conn, err := w.dial(t.Context(), "", "")
			testkit.NoError(t, err)
			clients.Go(func() { kind.run(conn) })
		}
		testkit.Pass(time.Second)
		stop()
		ok(t, result())
		testkit.AtMost(t, time.Since(last), time.Second)
		clients.Wait()
	})
}

// Each kind alone, in the middle of its request and after its handler has given up.
func TestM3_ASlowClientOfEachKindHoldsNoStop(t *testing.T) {
	for _, kind := range slowClients() {
		for _, after := range []time.Duration{50 * time.Millisecond, 450 * time.Millisecond, 3 * time.Second, 29*time.Second + 900*time.Millisecond} {
			line, _, _ := strings.Cut(kind.head, "\r")
			t.Run(fmt.Sprintf("%s tls=%t after %s", line, kind.tls, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, _, w, server := slowable(t, nil)
					if kind.tls {
						w = server
					}
					stop, result := start(t, m)
					testkit.Pass(time.Second)
					conn, err := w.dial(t.Context(), "", "")
					testkit.NoError(t, err)
					done := make(chan struct{})
					go func() {
						defer close(done)
						kind.run(conn)
					}()
					testkit.Pass(after)
					began := time.Now()
					stop()
					ok(t, result())
					testkit.AtMost(t, time.Since(began), time.Second)
					<-done
				})
			})
		}
	}
}

// A slow client eventually loses its connection, even without a stop.
func TestSlowClientsLoseTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, health, server := slowable(t, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		for _, kind := range slowClients() {
			w := health
			if kind.tls {
				w = server
			}
			conn, err := w.dial(t.Context(), "", "")
			testkit.NoError(t, err)
			began := time.Now()
			kind.run(conn)
			testkit.AtMost(t, time.Since(began), 70*time.Second, kind.head) // body and answer
		}
		stop()
		ok(t, result())
	})
}

// A steady client is served beyond the limits for slow clients, and a handler may run for any time.
func TestPatientHandlersAndSteadyClientsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, server := slowable(t, nil)
		s.Handle("/long", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent, err := io.ReadAll(r.Body)
			for range 3 {
				time.Sleep(time.Minute)
				fmt.Fprintf(w, "%s %v %v\n", sent, err, r.Context().Err())
				w.(http.Flusher).Flush()
			}
		}))
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		for _, c := range []*http.Client{server.client(t), plain(server.client(t))} {
			for _, sent := range []string{"", "body"} {
				resp, err := c.Post("https://x/long", "text/plain", strings.NewReader(sent))
				testkit.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				testkit.Equal(t, string(body), strings.Repeat(sent+" <nil> <nil>\n", 3), resp.Proto)
				testkit.Equal(t, err, nil, resp.Proto)
			}
		}
		stop()
		ok(t, result())
	})
}

// A request in flight at a stop still gets the received part of its body, and its complete answer.
func TestM1_ARequestWithABodyIsAnsweredAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, server := slowable(t, nil)
		came, free := make(chan struct{}, 2), make(chan struct{})
		s.Handle("/late", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came <- struct{}{}
			<-free
			sent, err := io.ReadAll(r.Body)
			fmt.Fprint(w, len(sent), err, strings.Repeat("x", 1<<20))
		}))
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		var all sync.WaitGroup
		for _, c := range []*http.Client{server.client(t), plain(server.client(t))} {
			all.Go(func() {
				resp, err := c.Post("https://x/late", "text/plain", strings.NewReader(strings.Repeat("y", 10000)))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				testkit.Equal(t, string(body) == "10000 <nil>"+strings.Repeat("x", 1<<20), true, fmt.Sprintf("%s: %.20q, %d bytes", resp.Proto, body, len(body)))
				testkit.Equal(t, err, nil, resp.Proto)
			})
		}
		<-came
		<-came
		stop()
		testkit.Pass(5 * time.Second)
		close(free)
		all.Wait()
		ok(t, result())
	})
}

func TestHeadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _, server := slowable(t, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		for _, c := range []*http.Client{server.client(t), plain(server.client(t))} {
			// The client must know the server's limit before it sends much: the wire has no buffer,
			// and either would wait for the other to read.
			if status, body := get(t, c, "https://x/"); status != 404 {
				t.Errorf("got %d %s", status, body)
			}
			for size, status := range map[int]int{60 << 10: 404, 80 << 10: 431} {
				r := request(t.Context(), "GET", "https://x/", "")
				r.RequestURI = ""
				r.Header.Set("X-Long", strings.Repeat("x", size))
				resp, err := c.Do(r)
				if status == 431 && err != nil && strings.Contains(err.Error(), "larger than peer's advertised limit") {
					continue // HTTP/2 reports this earlier
				}
				if err != nil {
					t.Error(err)
					continue
				}
				resp.Body.Close()
				testkit.Equal(t, resp.StatusCode, status, resp.Proto, fmt.Sprintf("a header of %d bytes is answered with %s", size, resp.Status))
			}
		}
		stop()
		ok(t, result())
	})
}

// A new connection displaces an idle one, never one with a running request.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, health, server := slowable(t, nil)
		h := newHeld()
		s.Handle("/held", h)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		answer := fetch(t, plain(server.client(t)), "https://x/held")
		<-h.came
		for _, w := range []*wire{health, server} {
			var conns []net.Conn
			for range 1000 {
				conn, err := w.dial(t.Context(), "", "")
				testkit.NoError(t, err)
				conns = append(conns, conn)
				// The oldest must not be too young to be displaced.
				time.Sleep(5 * time.Millisecond)
			}
			synctest.Wait()
			open, oldest := 0, -1
			for i, conn := range conns {
				_ = conn.SetReadDeadline(time.Now().Add(-1))
				if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
					if open++; oldest < 0 {
						oldest = i
					}
				}
			}
			if others := 1000 - oldest; open != others || others < 249 || others > 250 {
				t.Errorf("%d connections are open, the oldest is number %d", open, oldest)
			}
			for _, conn := range conns {
				conn.Close()
			}
		}
		close(h.free)
		testkit.Equal(t, <-answer, "done", "the request is answered with")
		stop()
		ok(t, result())
	})
}

// If handlers run for all connections, a connection whose handler waits for its client is
// displaced.
func TestConnectionsThatWaitForTheirClientsAreDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _, server := slowable(t, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		var clients sync.WaitGroup
		for range 300 {
			conn, err := server.dial(t.Context(), "", "")
			testkit.NoError(t, err)
			clients.Go(func() { trickler{"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", true}.run(conn) })
		}
		testkit.Pass(5 * time.Second)
		for range 3 {
			want(t, plain(server.client(t)), "https://x/locked", 401, "send the token of a ServiceAccount: Authorization: Bearer TOKEN")
		}
		stop()
		ok(t, result())
		clients.Wait()
	})
}

// A hijacked connection belongs to its handler, even after the handler has returned.
func TestHijackedConnectionsHaveNoDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, server := slowable(t, nil)
		taken := make(chan net.Conn, 1)
		s.Handle("/hijack", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			testkit.Equal(t, err, nil)
			taken <- conn
		}))
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		raw, err := server.dial(t.Context(), "", "")
		testkit.NoError(t, err)
		client := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
		defer raw.Close()
		testkit.NoError(t, testkit.Err(io.WriteString(client, "POST /hijack HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")))
		conn := <-taken
		defer conn.Close()
		testkit.Pass(10 * time.Minute)
		stop()
		ok(t, result())
		go func() { _, _ = io.WriteString(client, "hello\n") }()
		line, err := bufio.NewReader(conn).ReadString('\n')
		testkit.Equal(t, line, "hello\n", err)
	})
}
