// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Listen opens the address for Options.Health: host:port, :port for all interfaces, port 0 for a free one.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the address %s is taken: stop what listens there, or choose another one with -http", address)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; give -http a host and a port, such as localhost:8081", address, err)
	}
	return l, nil
}

// serveHealth answers until ctx is done. /healthz says that the process answers; /readyz that the operator has seen the
// cluster's state, and leads or could.
func serveHealth(ctx context.Context, l net.Listener, ready <-chan struct{}) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ready:
			fmt.Fprintln(w, "ok")
		default:
			http.Error(w, "the initial lists are not complete", http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- server.Close() })
	err := server.Serve(l)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return err // it ended of its own accord
	}
	return <-stopped
}
