// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	maxPages    = 16               // streams at once
	updateEvery = time.Second      // at most
	aliveEvery  = 15 * time.Second // at least, so that a page notices a lost connection
	streamLimit = 10 * time.Minute // then the page connects again, and is authorized again
)

// stream sends summaries to the open pages, as server-sent events.
type stream struct {
	summary func() []byte
	pages   chan struct{} // a place for each
	stops   stops
}

func newStream(summary func() []byte) *stream {
	return &stream{summary: summary, pages: make(chan struct{}, maxPages)}
}

func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, ok := query(w, r); !ok {
		return
	}
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open, the limit; close one", maxPages), http.StatusServiceUnavailable)
		return
	}
	secure(w.Header(), "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not delay events
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamLimit)
	defer cancel()
	s.send(ctx, s.stops.of(r), w)
}

// send sends each new summary until ctx ends, the server stops or the client has gone.
func (s *stream) send(ctx context.Context, stopped <-chan struct{}, w http.ResponseWriter) {
	out, tick := http.NewResponseController(w), time.NewTicker(updateEvery)
	defer tick.Stop()
	var last []byte
	var sent time.Time
	for {
		body := s.summary()
		now := time.Now()
		event := ""
		switch {
		case !bytes.Equal(body, last):
			event = fmt.Sprintf("event: summary\nid: %d\ndata: %s\n\n", now.UnixMilli(), body)
		case now.Sub(sent) >= aliveEvery:
			event = fmt.Sprintf("event: alive\nid: %d\ndata:\n\n", now.UnixMilli())
		}
		if event != "" {
			last, sent = body, now
			if _, err := w.Write([]byte(event)); err != nil || out.Flush() != nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-stopped:
			return
		case <-ctx.Done():
			return
		}
	}
}

// stops knows when the servers of requests stop. A request's context may last longer: a server lets
// its requests end by themselves, and a stream would not.
type stops struct {
	mu      sync.Mutex // guards what follows
	servers map[*http.Server]chan struct{}
}

// of returns a channel that is closed when Shutdown of the request's server begins. It is nil
// without a server.
func (s *stops) of(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stopped, known := s.servers[server]; known {
		return stopped
	}
	if s.servers == nil {
		s.servers = map[*http.Server]chan struct{}{}
	}
	stopped := make(chan struct{})
	s.servers[server] = stopped
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(stopped) }))
	return stopped
}
