// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
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
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	headerTimeout = 10 * time.Second // for the TLS handshake and, separately, for a header
	idleTimeout   = 90 * time.Second // as Go's HTTP client
	maxHeader     = 64 << 10         // bytes; a longer header gets 431
	maxStreams    = 100              // of an HTTP/2 connection
)

// Server serves handlers on one listener. New makes one, Open opens it, Serve runs it.
type Server struct {
	o   Options
	mux http.ServeMux

	authorizes atomic.Bool // Authorize was called

	calls    sync.WaitGroup // of health checks and reads of the certificate
	mistakes mistakes

	opened atomic.Pointer[opened] // set by Open
}

type opened struct {
	traffic     *traffic
	certificate *certificate // nil: plain HTTP, or GetCertificate
	tls         *tls.Config  // nil: plain HTTP
}

// New makes a server and returns the error of Options.Validate. It opens nothing.
func New(o Options) (*Server, error) {
	s, err := &Server{o: o.withDefaults()}, o.Validate()
	s.mistakes.failed = make(chan struct{})
	s.failed(err)
	return s, err
}

// mistakes has the mistakes of the options and of calls of Handle and Authorize.
type mistakes struct {
	mu     sync.Mutex // guards what follows
	all    []error
	failed chan struct{} // closed at the first mistake after Open
}

func (s *Server) failed(err error) {
	if err == nil {
		return
	}
	s.mistakes.mu.Lock()
	defer s.mistakes.mu.Unlock()
	s.mistakes.all = append(s.mistakes.all, err)
	if s.opened.Load() != nil && !run.Closed(s.mistakes.failed) {
		close(s.mistakes.failed)
	}
}

// Failed is closed at the first mistake in a call of Handle or Authorize after Open. A manager then
// stops.
func (s *Server) Failed() <-chan struct{} { return s.mistakes.failed }

// Validate returns the mistakes of the options and of calls of Handle and Authorize, or nil.
func (s *Server) Validate() error {
	s.mistakes.mu.Lock()
	defer s.mistakes.mu.Unlock()
	return errors.Join(s.mistakes.all...)
}

// Listen opens a TCP address, as in Options.Address. If it is in use, the error names a remedy.
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

// Handle mounts a handler under a pattern of net/http.ServeMux, such as "POST /validate", before or
// during Serve. If the handler is nil, or the pattern is invalid or conflicts with another one,
// Validate, Open and Serve return the mistake, and after Open it closes Failed.
//
// The context of a request ends when its client disconnects, or with the work context of Serve. If
// the handler panics, the client gets status 500 and the log gets the stack.
func (s *Server) Handle(pattern string, h http.Handler) {
	if argument.IsNil(h) {
		s.failed(fmt.Errorf("Handle: the handler of %q is nil", pattern))
		return
	}
	defer func() { // http.ServeMux panics
		if p := recover(); p != nil {
			where := regexp.MustCompile(` \(registered at [^)]*\)`) // always this file
			text := where.ReplaceAllString(fmt.Sprint(p), "")
			s.failed(fmt.Errorf("Handle: cannot use the pattern %q: %s", pattern, strings.ReplaceAll(text, "\n", " ")))
		}
	}()
	labels := pprof.Labels("handler", pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		pprof.Do(r.Context(), labels, func(context.Context) { h.ServeHTTP(w, r) })
	})
}

// Open opens the listener and reads the certificate, so that their errors appear before anything
// else starts. Call it once, then call Serve or Close. Certificate events go to the logger of ctx,
// even during Serve.
func (s *Server) Open(ctx context.Context) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.opened.Load() != nil {
		return errors.New("it is open already; make another server")
	}
	o := &opened{}
	switch {
	case s.o.Plain:
	case s.o.GetCertificate != nil:
		o.tls = baseOf(&s.o)
		o.tls.GetCertificate = s.o.GetCertificate
	default:
		o.certificate = newCertificate(&s.o, logging.Of(ctx), &s.calls)
		if err := o.certificate.refresh(); err != nil {
			return err
		}
		o.tls = o.certificate.config()
	}
	l := s.o.Listener
	if l == nil {
		var err error
		if l, err = Listen(s.o.Address); err != nil {
			return err
		}
	}
	o.traffic = newTraffic(l)
	s.opened.Store(o)
	if err := s.Validate(); err != nil { // Handle was called meanwhile
		_ = o.traffic.Close() // no client is connected
		return err
	}
	return nil
}

// Close closes a server that is open and will not serve.
func (s *Server) Close() error { return s.opened.Load().traffic.Close() }

// String returns the name and, once open, the address.
func (s *Server) String() string {
	o := s.opened.Load()
	if o == nil {
		return "the " + s.o.Name
	}
	return fmt.Sprintf("the %s on %s", s.o.Name, o.traffic.Addr())
}

// CheckCertificate returns an error when the certificate in use has expired, and a [manager.Remark]
// when newer files are broken. It returns nil before Open, for plain HTTP and for
// Options.GetCertificate.
func (s *Server) CheckCertificate() error {
	o := s.opened.Load()
	if o == nil || o.certificate == nil {
		return nil
	}
	return o.certificate.check()
}

// Serve accepts connections until take is done. Call it once, after Open.
//
// A stop begins with Options.Linger. Requests in flight continue until work, their context, ends.
// Their handlers then have 250 ms to answer. Serve returns nil after a stop, when no connection is
// open and no handler or health check runs, else the error of the listener or of Handle. It logs
// errors of clients to the logger of take.
func (s *Server) Serve(take, work context.Context) error {
	log, open := logging.Of(take), s.opened.Load()
	log.Info("serving", "server", s.o.Name, "address", open.traffic.Addr().String())
	srv := s.httpServer(open, work, log)
	drained := make(chan struct{})
	stop := context.AfterFunc(take, func() {
		defer close(drained)
		s.drain(open.traffic, context.WithoutCancel(take), work, srv)
	})
	var err error
	if open.tls != nil {
		err = srv.ServeTLS(open.traffic, "", "")
	} else {
		err = srv.Serve(open.traffic)
	}
	if stop() { // the listener has failed
		_ = srv.Close() // err has the cause
	} else {
		<-drained
	}
	open.traffic.wait()
	s.calls.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, s.Validate())
}

func (s *Server) httpServer(open *opened, work context.Context, l *slog.Logger) *http.Server {
	srv := &http.Server{
		Handler:           open.traffic.watched(&s.mux),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout},
		BaseContext:       func(net.Listener) context.Context { return work },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, connOf(c))
		},
		ConnState: open.traffic.turned,
		ErrorLog:  log.New(&errorLog{log: l.With("server", s.String()), sometimes: rate.Sometimes{First: 20, Interval: 10 * time.Second}}, "", 0),
	}
	srv.TLSConfig = open.tls
	if s.o.DisableHTTP2 {
		srv.Protocols = new(http.Protocols)
		srv.Protocols.SetHTTP1(true)
	}
	return srv
}

func (s *Server) drain(t *traffic, alive, work context.Context, srv *http.Server) {
	t.linger(work, s.o.Linger)
	limited, cancel := run.WithGrace(work, alive, moment)
	defer cancel()
	t.stop(cancel)
	if srv.Shutdown(limited) != nil {
		t.cut()
		_ = srv.Close() // traffic.wait waits for the remaining handlers
	}
}
