// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

const (
	// headerTimeout is how long a client may take to send a request's header, or for the TLS handshake.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection without a request stays open: as long as Go's client keeps one.
	idleTimeout = 90 * time.Second
	// maxHeader is how long the header of a request may be, in bytes: a longer one gets 431.
	maxHeader = 64 << 10
	// maxStreams is how many requests there may be at once on a connection with HTTP/2.
	maxStreams = 100
)

// server answers on one listener.
type server struct {
	name    string
	handler http.Handler
	tls     *tls.Config // nil: plain HTTP
	join    func()      // waits for what handlers have started
	traffic *traffic    // with the listener
}

// checkServers says what in their options cannot be meant.
func checkServers(h *HealthOptions, s *ServerOptions) error {
	var wrong []error
	if h != nil {
		wrong = append(wrong, h.validate())
	}
	if s != nil {
		wrong = append(wrong, s.validate())
	}
	if h != nil && s != nil {
		if _, port, _ := net.SplitHostPort(h.Address); h.Address == s.Address && port != "" && port != "0" {
			wrong = append(wrong, fmt.Errorf("manager.Options.Health and .Server have the same Address, %s; give each one of its own", h.Address))
		}
	}
	return errors.Join(wrong...)
}

// startServers opens the addresses of Options.Health and Options.Server, before anything else is started, and answers there until
// the stage ends.
func (m *Manager) startServers(in *stage, stopping context.Context) error {
	var opened []*server
	for _, open := range []func() (*server, error){m.openHealth, m.openServer} {
		s, err := open()
		if err != nil {
			for _, s := range opened {
				_ = s.traffic.Close() // no client has connected
			}
			return fmt.Errorf("the manager %q cannot run: %w", m.o.Name, err)
		}
		if s != nil {
			opened = append(opened, s)
		}
	}
	for _, s := range opened {
		in.run(s.name, func(ctx context.Context) error { return s.serve(ctx, stopping, m.o.Grace) })
	}
	return nil
}

// Listen opens an address as Options.Health and Options.Server do, for a program that wants to know at once whether it is free:
// host:port, :port for all interfaces, port 0 for a free one. The error is one sentence.
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

// newServer listens, unless there is a listener.
func (m *Manager) newServer(name, option, address string, l net.Listener) (*server, error) {
	if l == nil {
		var err error
		if l, err = Listen(address); err != nil {
			return nil, fmt.Errorf("manager.Options.%s: %w", option, err)
		}
	}
	m.logger().Info("serving", "server", name, "address", l.Addr().String())
	return &server{name: fmt.Sprintf("the %s on %s", name, l.Addr()), join: func() {}, traffic: newTraffic(l)}, nil
}

// serve answers until ctx is done. Requests under way then have what is left of the grace time, which began when stopping ended,
// and a moment to answer when their context ends. It returns when no connection is open and no handler runs.
func (s *server) serve(ctx, stopping context.Context, grace time.Duration) error {
	alive := context.WithoutCancel(ctx)
	work, cancel := withGrace(stopping, alive, grace)
	defer cancel()
	srv := &http.Server{
		Handler:           s.traffic.watched(s.handler),
		TLSConfig:         s.tls,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout},
		BaseContext:       func(net.Listener) context.Context { return work },
		ConnContext:       withConn,
		ConnState:         s.traffic.turned,
		ErrorLog:          log.New(newErrorLog(logr.FromContextAsSlogLogger(ctx).With("server", s.name)), "", 0),
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		s.drain(alive, work, srv)
	})
	var err error
	if s.tls != nil {
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
	s.join()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// drain has the server accept no connection any more, and closes those there are when they have been answered. Slow clients
// have a moment.
func (s *server) drain(alive, work context.Context, srv *http.Server) {
	limited, cancel := withGrace(work, alive, moment)
	defer cancel()
	s.traffic.stop(cancel)
	if srv.Shutdown(limited) != nil {
		s.traffic.cut()
		_ = srv.Close() // the handlers that go on are waited for
	}
}
