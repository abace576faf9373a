// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

var errDown = errors.New("fault: the proxy is down")

// Proxy is a proxy in front of an API server. Its methods are safe for concurrent use.
type Proxy struct {
	*Rules    // of its requests
	target    *url.URL
	identity  *certificate
	origin    *rest.Config
	anonymous *client                // unknown credentials, or none
	open      func() (*front, error) // at the address of the first call

	change sync.Mutex // held by Down, Up and Stop while they work; guards front
	front  *front     // nil: down

	host    string
	clients map[string]*client // by token; guarded by Rules.mu
}

// Start starts a proxy for the API server of target, on a port of the loopback interface. When ctx
// ends, running and later requests end, but Stop must still be called. Start returns an error for
// invalid options, an invalid target, or if it cannot listen.
func Start(ctx context.Context, target *rest.Config, o Options) (*Proxy, error) {
	return start(ctx, target, o, net.Listen)
}

func start(ctx context.Context, target *rest.Config, o Options, listen func(network, address string) (net.Listener, error)) (*Proxy, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if target == nil {
		return nil, errors.New("fault: target is nil; use the configuration of the API server, such as envtest.Cluster.Config")
	}
	at, _, err := rest.DefaultServerUrlFor(target)
	if err != nil {
		return nil, fmt.Errorf("fault: target.Host is %q: %w", target.Host, err)
	}
	cert, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("fault: cannot make a certificate: %w", err)
	}
	p := &Proxy{
		Rules: newRules(o), target: at, identity: cert, origin: rest.CopyConfig(target), clients: map[string]*client{},
	}
	anonymous := rest.AnonymousClientConfig(target)
	anonymous.Transport = target.Transport
	if p.anonymous, err = newClient(anonymous); err != nil {
		return nil, err
	}
	address := "127.0.0.1:0"
	p.open = func() (*front, error) {
		listener, err := listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("fault: cannot listen at %s: %w", address, err)
		}
		address = listener.Addr().String()
		return serve(ctx, listener, cert, p), nil
	}
	if p.front, err = p.open(); err != nil {
		return nil, err
	}
	p.host = "https://" + address
	return p, nil
}

// Stop cuts every connection and returns when everything that the proxy started has ended. Held
// requests are not forwarded. Calling it again is a no-op.
func (p *Proxy) Stop() {
	p.markStopped()
	p.takeDown(ErrStopped)
	p.mu.Lock()
	clients := slices.AppendSeq([]*client{p.anonymous}, maps.Values(p.clients))
	p.mu.Unlock()
	for _, c := range clients {
		c.close()
	}
}

// Down makes the proxy's port refuse connections, and cuts the open ones. It returns when their
// requests have ended. Rules and counters stay. Calling it again is a no-op.
func (p *Proxy) Down() { p.takeDown(errDown) }

func (p *Proxy) takeDown(cause error) {
	p.change.Lock()
	defer p.change.Unlock()
	if p.front != nil {
		p.front.close(cause)
		p.front = nil
	}
}

// Up undoes Down, on the same port. It fails if another program has taken the port.
func (p *Proxy) Up() error {
	p.change.Lock()
	defer p.change.Unlock()
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	switch {
	case stopped:
		return ErrStopped
	case p.front != nil:
		return nil
	}
	var err error
	p.front, err = p.open()
	return err
}

// begin returns nil after f.close.
func (f *front) begin(w http.ResponseWriter, h *http.Request) *exchange {
	p := f.proxy
	p.mu.Lock()
	closed := f.closed
	if !closed {
		f.handlers.Add(1)
	}
	p.mu.Unlock()
	if closed {
		return nil
	}
	x := newExchange(p.Rules, h)
	conn, _ := h.Context().Value(connKey{}).(net.Conn) // nil: in a test of the handler
	x.hangUp = func() {
		if h.Proto != "HTTP/2.0" && conn != nil {
			reset(conn)
		}
		// A past deadline resets an HTTP/2 stream, even if the client does not read.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	}
	if !p.begin(x) {
		f.handlers.Done()
		return nil
	}
	return x
}

func (f *front) handle(ctx context.Context, w http.ResponseWriter, h *http.Request) {
	x := f.begin(w, h)
	if x == nil {
		panic(http.ErrAbortHandler)
	}
	defer f.handlers.Done()
	if x.delivers() {
		// Only the proxy's end cancels the request, not its client's.
		lasting, cancel := context.WithCancelCause(context.WithoutCancel(h.Context()))
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		h = h.WithContext(lasting)
	}
	f.proxy.serve(x, w, h)
}

// serve panics with http.ErrAbortHandler for broken connections, as net/http requires.
func (p *Proxy) serve(x *exchange, w http.ResponseWriter, h *http.Request) {
	ctx, cancel := context.WithCancelCause(h.Context())
	x.setCancel(cancel)
	defer x.end()
	// An HTTP/1.1 server detects the client's disconnect only after the body has been read.
	h, err := buffered(h.WithContext(ctx))
	if err != nil {
		x.abort()
	}
	c, ours := p.clientOf(x.request.token)
	reverse := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.target)
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			if ours {
				r.Out.Header.Del("Authorization")
			}
		},
		Transport: roundTripper(func(out *http.Request) (*http.Response, error) {
			return x.roundTrip(out, noUpgrade{c.transport})
		}),
		FlushInterval: -1, // each chunk at once
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if ctx.Err() == nil && !errors.Is(err, errCut) {
				x.note(fmt.Sprintf("unreachable: %v", err))
			}
			x.abort()
		},
	}
	reverse.ServeHTTP(w, h)
}

func (x *exchange) abort() {
	x.sever()
	panic(http.ErrAbortHandler)
}

type noUpgrade struct{ next http.RoundTripper }

func (n noUpgrade) RoundTrip(h *http.Request) (*http.Response, error) {
	if h.Header.Get("Upgrade") != "" {
		return statusAnswer(h, errUpgrade.ErrStatus), nil
	}
	return n.next.RoundTrip(h)
}
