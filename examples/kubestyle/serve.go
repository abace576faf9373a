// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// checker is the HealthChecker of kube-controller-manager's healthz.
type checker interface {
	Name() string
	Check(r *http.Request) error
}

// server serves /healthz, and /metrics of the only registry.
type server struct {
	listener net.Listener
	http.Server
}

func listen(address string, checks []checker) (*server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", legacyregistry.Handler())
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) { health(w, r, checks) })
	return &server{l, http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}, nil
}

// run serves until ctx is done.
func (s *server) run(ctx context.Context) error {
	klog.FromContext(ctx).Info("Serving", "healthz", "http://"+s.listener.Addr().String()+"/healthz", "metrics", "http://"+s.listener.Addr().String()+"/metrics")
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func health(w http.ResponseWriter, r *http.Request, checks []checker) {
	var lines bytes.Buffer
	status := http.StatusOK
	for _, c := range checks {
		if err := c.Check(r); err != nil {
			status = http.StatusInternalServerError
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.Name(), err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.Name())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = lines.WriteTo(w) // fails only if the client is gone
}
