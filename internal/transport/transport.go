// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package transport is the http.RoundTripper below every client.Client. It records requests in the
// ledger of their context, checks the fence of their term, and refuses redirects that would send
// credentials elsewhere. [Wrap] installs it.
//
// It reads the response to a write while the caller reads it, without reading ahead, holding back
// or changing anything. It does not look at responses to reads, watches, logs and upgraded
// connections.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// roundTripper is the transport. It changes only the user agent of a request, and turns some
// redirects into errors.
type roundTripper struct {
	Options

	base      http.RoundTripper
	server    server
	traced    bool         // base is an *http.Transport, which reports connections
	userAgent string       // as configured
	used      *connections // without a term, by all clients of one configuration
}

// Wrap installs the transport in cfg, below all other wrappers, so that nothing waits between it
// and the connection. A cfg of another client.Client has the transport already; it then gets the
// options of both Clients.
func Wrap(cfg *rest.Config, o Options) error {
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return err
	}
	if err := checkEncrypted(cfg, u); err != nil {
		return err
	}
	userAgent, used := cfg.UserAgent, newConnections()
	cfg.WrapTransport = transport.Wrappers(func(base http.RoundTripper) http.RoundTripper {
		t := &roundTripper{Options: o, base: base, server: serverAt(u), userAgent: userAgent, used: used}
		for rt := base; rt != nil; {
			switch own := rt.(type) {
			case *roundTripper: // of a Client that was made from this one's config
				own.inherit(o)
				return base
			case *http.Transport:
				t.traced = true
				return t
			case utilnet.RoundTripperWrapper:
				rt = own.WrappedRoundTripper()
			default:
				return t
			}
		}
		return t
	}, cfg.WrapTransport)
	return nil
}

// inherit adds the options of the Client that the configuration comes from, before any request.
func (t *roundTripper) inherit(o Options) {
	t.Strict = t.Strict || o.Strict
	if t.Hooks.Answered == nil {
		t.Hooks.Answered = o.Hooks.Answered
	}
	if t.Hooks.Requested == nil {
		t.Hooks.Requested = o.Hooks.Requested
	}
	if t.Hooks.Unfenced == nil {
		t.Hooks.Unfenced = o.Hooks.Unfenced
	}
	if t.Hooks.Unattributed == nil {
		t.Hooks.Unattributed = o.Hooks.Unattributed
	}
}

// WrappedRoundTripper lets client-go find the transport below, for example to close its
// connections.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.base }

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.Hooks.Answered == nil {
		resp, err := t.attributed(req)
		return followed(req, resp, err)
	}
	began := time.Now()
	resp, err := t.attributed(req)
	a := hook.APIAnswer{
		Method: req.Method, Host: req.URL.Host, Took: time.Since(began), Err: err,
		Watch: strings.Contains(req.URL.RawQuery, "watch=true") || strings.Contains(req.URL.RawQuery, "watch=1"),
	}
	if err == nil {
		a.Status = resp.StatusCode
	}
	t.Hooks.Answered(a)
	return followed(req, resp, err)
}

func (t *roundTripper) attributed(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	l := ledger.Of(ctx)
	request, precondition := t.server.read(req)
	if l == nil {
		onPurpose := term.Decided(ctx) && term.Of(ctx) == nil || ctx.Value(ledger.ContextKey{}) != nil
		refused := t.Strict && !term.Decided(ctx)
		if !onPurpose && !refused && t.Hooks.Unattributed != nil && request.Stores() {
			event := eventOf(&request, "", "")
			event.UserAgent = req.UserAgent()
			t.Hooks.Unattributed(event)
		}
		resp, _, err := t.send(req, &request, "")
		return resp, err
	}
	e := &exchange{Options: &t.Options, buffers: &t.server.buffers, ledger: l, term: term.Of(ctx), precondition: precondition}
	if err := l.Begin(&e.entry, request); err != nil {
		closeBody(req)
		return nil, err
	}
	controller := l.Origin().Controller
	sign(req, t.userAgent, controller)
	ended := ctx.Err() != nil
	resp, unsent, err := t.send(req, e.entry.Request(), controller)
	if err != nil {
		e.failed(err, unsent || ended)
		return resp, err
	}
	e.answered(req, resp)
	return resp, nil
}

var errNoTerm = errors.New("its context has no term of leadership; derive the context from the one of the Reconcile or of the leading work, " +
	"or use term.Without if a replica that does not lead may send it, too")

// send sends a request if it passes the fence. unsent reports that certainly nothing was sent.
func (t *roundTripper) send(req *http.Request, r *ledger.Request, controller string) (resp *http.Response, unsent bool, err error) {
	if under := term.Of(req.Context()); under != nil {
		resp, err = under.RoundTrip(t.base, req, t.traced)
	} else if err = t.unfenced(req, r, controller); err != nil {
		closeBody(req)
	} else {
		resp, err = t.used.roundTrip(t.base, req, t.traced)
	}
	if err == nil {
		return resp, false, nil
	}
	if fenced, ok := errors.AsType[*term.FencedError](err); ok {
		fenced.Controller, fenced.Request = controller, *r
		return resp, !fenced.Uncertain, err
	}
	return resp, neverSent(err), err
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// unfenced refuses or reports a request that may write and has no term.
func (t *roundTripper) unfenced(req *http.Request, r *ledger.Request, controller string) error {
	if term.Decided(req.Context()) || !t.Strict && t.Hooks.Unfenced == nil || !r.Stores() {
		return nil
	}
	event := eventOf(r, controller, "")
	if t.Strict {
		event.Err = &term.FencedError{Controller: controller, Request: *r, Err: errNoTerm}
	}
	if t.Hooks.Unfenced != nil {
		t.Hooks.Unfenced(event)
	}
	return event.Err
}

func neverSent(err error) bool {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || errors.As(err, &certificate)
}

// Disconnect closes the idle connections below rt. A request leaves an HTTP/2 connection only some
// time after its end, so Disconnect repeats until none is open, or ctx ends.
func Disconnect(ctx context.Context, rt http.RoundTripper) {
	const first, most = 100 * time.Microsecond, 10 * time.Millisecond
	used := connectionsBelow(rt)
	for wait := first; ; wait = min(2*wait, most) {
		utilnet.CloseIdleConnectionsFor(rt)
		if used == nil || !used.open() {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func connectionsBelow(rt http.RoundTripper) *connections {
	for rt != nil {
		if own, ok := rt.(*roundTripper); ok {
			return own.used
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			return nil
		}
		rt = wrapper.WrappedRoundTripper()
	}
	return nil
}
