// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/logging"
)

// traffic has a server's connections and running handlers. http.Server.Shutdown waits for slow
// clients, but not for hijacked connections or, after its context, for handlers.
type traffic struct {
	net.Listener

	mu       sync.Mutex // guards what follows, the connections and the exchanges
	changed  *sync.Cond
	conns    int                // with displaced and waiting ones
	open     map[*conn]struct{} // those with a place
	waiting  []*conn            // for a place, the oldest first
	running  map[*exchange]struct{}
	lingers  bool        // connections close after their answers
	over     bool        // no handler is called any more
	stopping bool        // slow clients have only a moment left
	quiet    *time.Timer // during a stop; runs while no handler runs
}

func newTraffic(l net.Listener) *traffic {
	t := &traffic{Listener: l, open: map[*conn]struct{}{}, running: map[*exchange]struct{}{}}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// Accept displaces another connection, or lets the new one wait, at maxConns.
func (t *traffic) Accept() (net.Conn, error) {
	raw, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c, displaced := t.admit(raw)
	if displaced != nil {
		// Without TLS's close message, which waits for the client. Its goroutine then ends.
		_ = displaced.Close()
	}
	return c, nil
}

func (t *traffic) turned(nc net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	c := connOf(nc)
	c.hijacked.Store(state == http.StateHijacked)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	t.leaveLocked(c)
	t.conns--
	t.changed.Broadcast()
}

func (t *traffic) watched(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := t.newExchange(w, r)
		ok, lingers := t.begin(x, r)
		if !ok {
			http.Error(w, "the server has stopped", http.StatusServiceUnavailable)
			return
		}
		defer t.end(x)
		if lingers {
			w.Header().Set("Connection", "close")
		}
		answered(h, answer{w, x}, r) //nolint:contextcheck // the context is in r
		x.finish()
	})
}

func (t *traffic) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return &exchange{traffic: t, conn: c, http2: r.ProtoMajor > 1, control: http.NewResponseController(w)}
}

func answered(h http.Handler, w answer, r *http.Request) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // as in net/http
			panic(p)
		}
		logging.Of(r.Context()).Error("a handler has panicked", "handler", r.Pattern, "panic", p, "stack", string(debug.Stack()))
		if w.x.begun {
			panic(http.ErrAbortHandler) // marks the answer as incomplete for the client
		}
		http.Error(w, "the handler of "+r.Pattern+" has failed; see the log", http.StatusInternalServerError)
	}()
	h.ServeHTTP(w, r)
}

func (t *traffic) begin(x *exchange, r *http.Request) (ok, lingers bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false, false
	}
	t.running[x] = struct{}{}
	x.conn.handlers++
	x.conn.served = true
	x.conn.since = time.Now()
	x.conn.final.Store(false)
	if t.quiet != nil {
		t.quiet.Stop()
	}
	x.startLocked(r)
	return true, t.lingers
}

func (t *traffic) end(x *exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.over = true
	delete(t.running, x)
	x.conn.handlers--
	x.conn.since = time.Now()
	if t.stopping && x.conn.handlers == 0 && !x.conn.hijacked.Load() {
		x.conn.hurry()
	}
	if t.quiet != nil && len(t.running) == 0 {
		t.quiet.Reset(moment)
	}
	t.changed.Broadcast()
}

// linger makes connections close after their answers. It waits until none is open, for at most d.
func (t *traffic) linger(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer context.AfterFunc(ctx, t.wake)()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lingers = true
	for t.conns > 0 && ctx.Err() == nil {
		t.changed.Wait()
	}
}

func (t *traffic) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed.Broadcast()
}

// stop calls done when no handler has run for a moment.
func (t *traffic) stop(done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopping = true
	t.quiet = time.AfterFunc(moment, func() {
		if t.finish() {
			done()
		}
	})
	if len(t.running) > 0 {
		t.quiet.Stop()
	}
	for x := range t.running {
		x.hurryLocked()
	}
	for c := range t.open {
		if c.handlers == 0 {
			c.hurry()
		}
	}
	for _, c := range t.waiting {
		c.stopWaiting()
	}
}

func (t *traffic) finish() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = t.over || len(t.running) == 0
	return t.over
}

// cut closes every connection below TLS, whose close message could wait for the client.
func (t *traffic) cut() {
	t.mu.Lock()
	conns := slices.AppendSeq(slices.Clone(t.waiting), maps.Keys(t.open))
	t.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // its goroutine then ends
	}
}

// wait returns when no handler will be called any more.
func (t *traffic) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.conns > 0 || len(t.running) > 0 {
		t.changed.Wait()
	}
	t.over = true
	if t.quiet != nil {
		t.quiet.Stop()
	}
}
