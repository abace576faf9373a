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

// client is how the proxy speaks to the API server for one user: the credentials of a TLS client end at the proxy, so
// that it needs them itself.
type client struct {
	transport http.RoundTripper
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	conns     *connrotation.ConnectionTracker

	mu     sync.Mutex // guards closed, and that nothing is tracked afterwards
	closed bool
}

// newClient returns what sends requests as cfg would, but for what the client's side of cfg has done already. Its
// connections are its own.
func newClient(cfg *rest.Config) (*client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate, cfg.UserAgent, cfg.WrapTransport = rest.ImpersonationConfig{}, "", nil
	cfg.DisableCompression = true // what the client has not asked for is not added
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", "" // client-go watches files for as long as the process runs
	c := &client{dial: cfg.Dial, conns: connrotation.NewConnectionTracker()}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if cfg.Transport == nil {
		cfg.Dial = c.connect
		if cfg.Proxy == nil {
			cfg.Proxy = http.ProxyFromEnvironment // client-go's own default; set, it keeps the transport out of its cache
		}
	}
	var err error
	if c.transport, err = rest.TransportFor(cfg); err != nil {
		return nil, fmt.Errorf("fault: cannot speak to the API server: %w", err)
	}
	return c, nil
}

// connect may be called by a transport also after the request that it connected for has ended.
func (c *client) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return nil, errStopped
	}
	return c.conns.Track(conn), nil
}

func (c *client) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.conns.CloseAll()
}

// Config returns the configuration for a client that is who target says, through the proxy. Each call makes a client
// that Match.Config tells from the others. It ends with Stop.
func (p *Proxy) Config() (*rest.Config, error) { return p.ConfigOf(p.origin) }

// ConfigOf returns the configuration for a client that is who cfg says, a user of the same API server, through the proxy:
// it holds a token that only the proxy knows, and the proxy uses cfg's certificate, token or plugin in its place. All
// else in cfg (impersonation, wrapped transports, user agent, rate limits) stays with the client, but for how to
// connect. Each call makes a client that Match.Config tells from the others.
//
// Credentials that a caller puts into the result by itself, such as a token of a service account, are passed on as
// they are.
func (p *Proxy) ConfigOf(cfg *rest.Config) (*rest.Config, error) {
	if cfg.Host == p.host {
		return nil, fmt.Errorf("fault: the configuration leads to the proxy itself, %s: give that of the API server", p.host)
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
		return nil, errStopped
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

// clientOf returns who sends a request, and whether the credentials in it are the proxy's.
func (p *Proxy) clientOf(token string) (c *client, ours bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[token]; c != nil {
		return c, true
	}
	return p.anonymous, false
}
