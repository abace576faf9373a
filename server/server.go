// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	// headerTimeout bounds how long a client takes to send a request's header, or for the TLS
	// handshake.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection without a request stays open: as long as Go's client
	// keeps one.
	idleTimeout = 90 * time.Second
	// maxHeader is the size of a request's header in bytes; a longer one gets 431.
	maxHeader = 64 << 10
	// maxStreams is how many requests an HTTP/2 connection carries at once.
	maxStreams = 100
)

// Server serves handlers on one listener. New makes one; Open opens it; Serve runs it.
type Server struct {
	o   Options
	mux http.ServeMux

	calls sync.WaitGroup // of health checks, and reads of the certificate

	// set by Open
	traffic     *traffic     // with the listener
	certificate *certificate // nil: plain HTTP
}

// New makes a server. It opens nothing. It returns the error of Options.Validate.
func New(o Options) (*Server, error) {
	return &Server{o: o.withDefaults()}, o.Validate()
}

// Listen opens an address: host:port, :port for all interfaces, port 0 for a free port. A program
// that opens its addresses early learns early that one is taken.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the address %s is taken: stop what listens there, or choose another one", address)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; give a host and a port, such as localhost:8081", address, err)
	}
	return l, nil
}

// Handle mounts a handler under a pattern of net/http.ServeMux, such as "/metrics" or "POST
// /validate", before Serve or while it runs. It returns an error if the handler is nil, or the
// pattern is invalid or conflicts with another one.
//
// The context of a request ends when its client goes away, or when the work context of Serve ends.
// A handler that panics is answered with status 500; the log has its stack.
func (s *Server) Handle(pattern string, h http.Handler) (err error) {
	if argument.IsNil(h) {
		return fmt.Errorf("Handle: the handler of %q is nil", pattern)
	}
	defer func() { // http.ServeMux panics
		if p := recover(); p != nil {
			where := regexp.MustCompile(` \(registered at [^)]*\)`) // that is always here
			text := where.ReplaceAllString(fmt.Sprint(p), "")
			err = fmt.Errorf("Handle: the pattern %q is of no use: %s", pattern, strings.ReplaceAll(text, "\n", " "))
		}
	}()
	labels := pprof.Labels("handler", pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		pprof.Do(r.Context(), labels, func(context.Context) { h.ServeHTTP(w, r) })
	})
	return nil
}

// Open opens the listener and reads the certificate, so that what is wrong with them is known
// before anything else starts. Call it once. A server that is open needs Serve or Close. The
// logger of ctx is told about certificates.
func (s *Server) Open(ctx context.Context) error {
	if !s.o.Plain {
		s.certificate = newCertificate(&s.o, loggerOf(ctx), &s.calls)
		if err := s.certificate.refresh(); err != nil {
			return err
		}
	}
	l := s.o.Listener
	if l == nil {
		var err error
		if l, err = Listen(s.o.Address); err != nil {
			return err
		}
	}
	s.traffic = newTraffic(l)
	return nil
}

// Close closes a server that was opened and will not serve.
func (s *Server) Close() error { return s.traffic.Close() }

// String names the server and, once it is open, its address.
func (s *Server) String() string {
	if s.traffic == nil {
		return "the " + s.o.Name
	}
	return fmt.Sprintf("the %s on %s", s.o.Name, s.traffic.Addr())
}

// Certificate returns an error when the certificate in use has expired. It returns a Remark when
// the files that replaced it are broken. Call it when the server is open.
func (s *Server) Certificate() error {
	if s.certificate == nil {
		return nil
	}
	return s.certificate.check()
}

// Serve accepts connections until take is done. The context of each request is work: requests under
// way at a stop continue until it ends, and their handlers then have a moment to answer. Serve
// returns when no connection is open, and no handler or health check runs. It logs to the logger of
// take what clients do wrong. The server must be open.
func (s *Server) Serve(take, work context.Context) error {
	log := loggerOf(take)
	log.Info("serving", "server", s.o.Name, "address", s.traffic.Addr().String())
	srv := s.httpServer(work, log)
	drained := make(chan struct{})
	stop := context.AfterFunc(take, func() {
		defer close(drained)
		s.drain(context.WithoutCancel(take), work, srv)
	})
	var err error
	if s.certificate != nil {
		err = srv.ServeTLS(s.traffic, "", "")
	} else {
		err = srv.Serve(s.traffic)
	}
	if stop() { // it has ended by itself
		_ = srv.Close() // err says more
	} else {
		<-drained
	}
	s.traffic.wait()
	s.calls.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) httpServer(work context.Context, l *slog.Logger) *http.Server {
	srv := &http.Server{
		Handler:           s.traffic.watched(&s.mux),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout},
		BaseContext:       func(net.Listener) context.Context { return work },
		ConnContext:       withConn,
		ConnState:         s.traffic.turned,
		ErrorLog:          log.New(newErrorLog(l.With("server", s.String())), "", 0),
	}
	if s.certificate != nil {
		srv.TLSConfig = s.certificate.config()
	}
	return srv
}

// drain accepts no more connections, and closes each one when its requests are answered. Slow
// clients have a moment.
func (s *Server) drain(alive, work context.Context, srv *http.Server) {
	limited, cancel := run.WithGrace(work, alive, moment)
	defer cancel()
	s.traffic.stop(cancel)
	if srv.Shutdown(limited) != nil {
		s.traffic.cut()
		_ = srv.Close() // the handlers that go on are waited for
	}
}
