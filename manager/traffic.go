// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bufio"
	"net"
	"net/http"
	"sync"
)

// traffic is what goes on on a server: http.Server.Shutdown waits neither for what has taken over its connection, nor, when its
// time is over, for anything.
type traffic struct {
	mu       sync.Mutex // guards what follows
	changed  *sync.Cond
	open     map[net.Conn]http.ConnState
	handlers int
	over     bool // nothing is waited for any more
}

func newTraffic() *traffic {
	t := &traffic{open: map[net.Conn]http.ConnState{}}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// turned notes the state of a connection.
func (t *traffic) turned(c net.Conn, state http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked { // a hijacked one is the handler's
		delete(t.open, c)
		t.changed.Broadcast()
		return
	}
	t.open[c] = state
}

// closeNew closes the connections that no request has come on, for which http.Server.Shutdown would wait five seconds.
func (t *traffic) closeNew() {
	for _, c := range t.fresh() {
		_ = c.Close() // its goroutine notices
	}
}

func (t *traffic) fresh() (conns []net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, state := range t.open {
		if state == http.StateNew {
			conns = append(conns, c)
		}
	}
	return conns
}

// counted has the handler's calls be waited for.
func (t *traffic) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !t.begin() {
			http.Error(w, "the server has stopped", http.StatusServiceUnavailable)
			return
		}
		defer t.end()
		h.ServeHTTP(w, r)
	})
}

func (t *traffic) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.handlers++
	}
	return !t.over
}

func (t *traffic) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handlers--
	t.changed.Broadcast()
}

// wait returns when no connection is open and no handler runs. None will be called any more.
func (t *traffic) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.open) > 0 || t.handlers > 0 {
		t.changed.Wait()
	}
	t.over = true
}

// begun is an answer that says whether any of it was written.
type begun struct {
	http.ResponseWriter
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begun) WriteHeader(status int) {
	b.begun = b.begun || status >= http.StatusOK
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *begun) Write(p []byte) (int, error) {
	b.begun = true
	return b.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (b *begun) Flush() {
	b.begun = true
	_ = http.NewResponseController(b.ResponseWriter).Flush() // http.Flusher has no error
}

// Hijack implements http.Hijacker.
func (b *begun) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	b.begun = true
	return http.NewResponseController(b.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }
