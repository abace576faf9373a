// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
)

var (
	errCut     = errors.New("fault: the connection was cut by a rule")
	errDown    = errors.New("fault: the proxy is down")
	errStopped = errors.New("fault: the proxy has been stopped")
	errEnded   = errors.New("fault: the request has ended")
)

// Proxy is a proxy in front of an API server. Its methods are safe for concurrent use.
type Proxy struct {
	options   Options
	target    *url.URL
	identity  *certificate
	origin    *rest.Config
	anonymous *client                // for requests with unknown credentials, or none
	open      func() (*front, error) // at the address of the first call

	change sync.Mutex // held by Down, Up and Stop while they work; guards front
	front  *front     // nil: down

	mu       sync.Mutex // guards the fields below, and those that name it in other types
	rules    notice     // wakes running requests: their rules have changed
	counters notice     // wakes waiters for a Fault's counters
	stopped  bool
	stamp    uint64 // of the latest arrival, of a request or a part of an answer
	host     string
	clients  map[string]*client // by token
	faults   []*Fault
	underWay []*exchange // in order of arrival
	log      []*Request
	counts   map[Kind]int
}

// Start starts a proxy for the API server of target, on a port of the loopback interface. When ctx
// ends, running and later requests end, but Stop must still be called.
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
		options: o.withDefaults(), target: at, identity: cert, origin: rest.CopyConfig(target),
		rules: make(notice), counters: make(notice), clients: map[string]*client{}, counts: map[Kind]int{},
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
// requests end and are not forwarded. Calling it again is a no-op.
func (p *Proxy) Stop() {
	p.mu.Lock()
	p.stopped = true
	p.counters.broadcastLocked()
	p.mu.Unlock()
	p.takeDown(errStopped)
	p.mu.Lock()
	clients := []*client{p.anonymous}
	for _, c := range p.clients {
		clients = append(clients, c)
	}
	p.mu.Unlock()
	for _, c := range clients {
		c.close()
	}
}

// Down makes the proxy's port refuse connections, as if nothing listened, and cuts the open ones.
// It returns when their requests have ended. Rules and counters stay. Calling it again is a no-op.
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
		return errStopped
	case p.front != nil:
		return nil
	}
	var err error
	p.front, err = p.open()
	return err
}

// Cut immediately breaks the connections of matching running requests (see Rule.Cut), and returns
// their number.
func (p *Proxy) Cut(m Match) int {
	p.mu.Lock()
	candidates := slices.Clone(p.underWay)
	p.mu.Unlock()
	n := 0
	for _, x := range candidates {
		if m.matches(p.copyOf(&x.request)) && x.cut() {
			n++
		}
	}
	return n
}

// Kind is the key of Counts.
type Kind struct{ Verb, Group, Resource, Subresource string }

// Counts returns the number of requests so far, by kind. Requests whose path names no resource are
// counted by verb alone.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := make(map[Kind]int, len(p.counts))
	for k, n := range p.counts {
		counts[k] = n
	}
	return counts
}

// Requests returns the matching ones of the last Options.LogSize requests, in order of arrival.
func (p *Proxy) Requests(m Match) []Request {
	p.mu.Lock()
	all := make([]Request, len(p.log))
	for i, r := range p.log {
		all[i] = r.copyLocked()
	}
	p.mu.Unlock()
	return slices.DeleteFunc(all, func(r Request) bool { return !m.matches(r) })
}

func (p *Proxy) copyOf(r *Request) Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.copyLocked()
}

func (r *Request) copyLocked() Request {
	c := *r
	c.Effects = slices.Clone(r.Effects)
	return c
}

// noteLocked records an effect once.
func (r *Request) noteLocked(effect string) {
	if !slices.Contains(r.Effects, effect) {
		r.Effects = append(r.Effects, effect)
	}
}

// handle handles a request until ctx ends. A panic with http.ErrAbortHandler makes the server break
// the connection.
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
	x.serve(h)
}
