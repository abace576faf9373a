// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/manager"
)

// Add makes a server that a manager runs, for handlers added with Handle. Call it before the
// manager's Run, which returns mistakes as errors. Options.Client is always the manager's. With
// TLS, the check certificate-NAME of /readyz fails when the certificate has expired, and ?verbose
// reports a newer one that is broken. NAME is Options.Name, with '-' for each character that is no
// letter, digit, '-', '_' or '.'.
func Add(m *manager.Manager, o Options) *Server {
	s := add(m, o)
	s.checkCertificate(m, s.CheckCertificate)
	return s
}

func add(m *manager.Manager, o Options) *Server {
	o.Client = m.Client()
	s, _ := New(o) // Validate has the error
	m.AddServer(s)
	return s
}

func (s *Server) checkCertificate(m *manager.Manager, check func() error) {
	if !s.o.Plain && s.o.GetCertificate == nil {
		name := strings.Map(func(r rune) rune {
			if strings.ContainsRune("-._", r) || r < 'a' && '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
				return r
			}
			return '-'
		}, s.o.Name)
		m.AddReadyzCheck("certificate-"+name[:min(len(name), 200)], func(context.Context) error { return check() })
	}
}

// AddHealth adds a server for the kubelet's probes. It is Plain, and its default Address is :8081.
// See [manager.Manager.Livez] and [manager.Manager.Readyz] for the checks:
//
//	/livez, /healthz  fails if the process should be restarted
//	/readyz           fails if the process should get no requests
//	/livez/NAME       one check; also under the other paths
//
// The answers have the format of Kubernetes' own components: 200 and "ok", or 500 and a line for
// each check. ?verbose always returns the lines. ?exclude=NAME skips a check. The lines contain
// error texts: serve them to the kubelet only.
//
// The context of a check ends after 700 ms. A check fails if it panics or takes more than 800 ms.
// It is not called again before it returns.
func AddHealth(m *manager.Manager, o Options) *Server {
	o.Plain, o.Name, o.Address = true, cmp.Or(o.Name, "health server"), o.addressOr(":8081")
	s := add(m, o)
	h := &health{checks: m, calls: &s.calls}
	for _, path := range healthPaths {
		s.Handle("GET "+path, h)
		s.Handle("GET "+path+"/{name...}", h)
	}
	return s
}

// AddMetrics adds a server that serves manager.Options.Metrics at /metrics. With TLS, the default
// Address is :8443, and a request needs the right to get /metrics: see [Server.Authorize]. With
// Plain, the default Address is :8080, and all requests are answered. As with Add, /readyz has a
// check of the certificate, but an expired one is only a remark.
func AddMetrics(m *manager.Manager, o Options) *Server {
	address := ":8443"
	if o.Plain {
		address = ":8080"
	}
	o.Name, o.Address = cmp.Or(o.Name, "metrics server"), o.addressOr(address)
	s := add(m, o)
	s.checkCertificate(m, func() error {
		err := s.CheckCertificate()
		if err != nil { // the Pod can still serve its webhooks
			err = manager.Remark(err.Error())
		}
		return err
	})
	h, err := metricsOf(m)
	switch {
	case err != nil:
		s.failed(err)
	case o.Plain:
		s.Handle("/metrics", h)
	default:
		s.Handle("/metrics", s.Authorize(h))
	}
	return s
}

func metricsOf(m *manager.Manager) (http.Handler, error) {
	metrics := m.Metrics()
	if argument.IsNil(metrics) {
		return nil, errors.New("AddMetrics: there is nothing to serve; set manager.Options.Metrics, to the result of metrics.New")
	}
	h, err := metrics.Handler()
	if err != nil {
		return nil, fmt.Errorf("manager.Options.Metrics: %w", err)
	}
	return h, nil
}

func (o *Options) addressOr(address string) string {
	if o.Listener != nil {
		return o.Address
	}
	return cmp.Or(o.Address, address)
}
