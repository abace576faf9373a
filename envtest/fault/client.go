// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// client sends requests to the API server for one user: TLS ends at the proxy.
type client struct {
	transport http.RoundTripper
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	conns     *connrotation.ConnectionTracker

	mu     sync.Mutex // guards closed; no connection is tracked after close
	closed bool
}

// newClient leaves out what the caller's client has already applied.
func newClient(cfg *rest.Config) (*client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate, cfg.UserAgent, cfg.WrapTransport = rest.ImpersonationConfig{}, "", nil
	cfg.DisableCompression = true // add only what the client requested
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	// client-go would watch the files until the process ends.
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", ""
	c := &client{dial: cfg.Dial, conns: connrotation.NewConnectionTracker()}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if cfg.Transport == nil {
		cfg.Dial = c.connect
		if cfg.Proxy == nil {
			// This is client-go's default. Setting it keeps the transport out of client-go's cache.
			cfg.Proxy = http.ProxyFromEnvironment
		}
	}
	var err error
	if c.transport, err = rest.TransportFor(cfg); err != nil {
		return nil, fmt.Errorf("fault: cannot connect to the API server: %w", err)
	}
	return c, nil
}

// connect may be called by the transport after the request that needed the connection has ended.
func (c *client) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return nil, ErrStopped
	}
	return c.conns.Track(conn), nil
}

func (c *client) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.conns.CloseAll()
}

// Config is ConfigOf for the target of Start. The configuration is valid until Stop.
func (p *Proxy) Config() (*rest.Config, error) { return p.ConfigOf(p.origin) }

// ConfigOf returns the configuration for a client that reaches the API server through the proxy,
// with the credentials of cfg. cfg must be for the same API server. The result has a token that
// only the proxy knows; the proxy replaces it by cfg's certificate, token or plugin. All but the
// connection settings stay as in cfg. To restrict a rule to some clients, make them from a call of
// their own, and set Match.Config to its result.
//
// Credentials that you put into the result, such as a service account token, are forwarded
// unchanged.
func (p *Proxy) ConfigOf(cfg *rest.Config) (*rest.Config, error) {
	if cfg.Host == p.host {
		return nil, fmt.Errorf("fault: the configuration leads to the proxy itself, %s; use the one of the API server", p.host)
	}
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	p.mu.Lock()
	stopped := p.stopped
	if !stopped {
		p.clients[token] = c
	}
	p.mu.Unlock()
	if stopped {
		return nil, ErrStopped
	}
	through := rest.CopyConfig(cfg)
	through.Host = p.host
	through.TLSClientConfig = rest.TLSClientConfig{CAData: p.identity.pem, NextProtos: cfg.NextProtos}
	through.Transport, through.Dial, through.Proxy = nil, nil, nil
	through.Username, through.Password, through.BearerTokenFile = "", "", ""
	through.AuthProvider, through.AuthConfigPersister, through.ExecProvider = nil, nil, nil
	through.BearerToken = token
	return through, nil
}

func (p *Proxy) clientOf(token string) (c *client, ours bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[token]; c != nil {
		return c, true
	}
	return p.anonymous, false
}
