// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package transport is the http.RoundTripper below every client.Client. It records requests in the
// ledger of their context, checks the fence of their term, and refuses redirects that would send
// credentials elsewhere. It keeps client-go from waiting for a long Retry-After. [Wrap] installs
// it.
//
// It reads the response to a write while the caller reads it, without reading ahead, holding back
// or changing the body. It does not look at responses to reads, watches, logs and upgraded
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
	"github.com/setpoint-dev/setpoint/internal/connection"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// roundTripper is the transport. It changes only the user agent of a request, and turns some
// redirects into errors.
type roundTripper struct {
	Options

	base        http.RoundTripper
	server      server
	traced      bool            // base reports connections
	userAgent   string          // as configured
	connections *connection.Set // of all clients of one configuration
	rights      rights
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
	connections, err := connection.NewSet(cfg)
	if err != nil {
		return err
	}
	userAgent, used := cfg.UserAgent, connection.Below[*roundTripper](cfg.Transport)
	cfg.WrapTransport = transport.Wrappers(func(base http.RoundTripper) http.RoundTripper {
		// If cfg is from another Client, that Client has wrapped the transport already.
		if own := connection.Below[*roundTripper](base); own != nil {
			own.inherit(o, connections)
			if own != used || own.Hook == nil { // another Client's requests are not this one's
				own.Hook = hook.Join(own.Hook, o.Hook)
			}
			return base
		}
		t := &roundTripper{Options: o, server: serverAt(u), userAgent: userAgent}
		t.over(base, connections)
		return t
	}, cfg.WrapTransport)
	return nil
}

// over uses connections for base.
func (t *roundTripper) over(base http.RoundTripper, connections *connection.Set) {
	t.base, t.connections = connections.Over(base), connections
	t.traced = connection.Below[*http.Transport](t.base) != nil
}

// inherit adds the options of the Client that the configuration comes from, before any request, and
// uses its connections.
func (t *roundTripper) inherit(o Options, connections *connection.Set) {
	t.over(t.base, connections)
	t.RequireTerm = t.RequireTerm || o.RequireTerm
}

// WrappedRoundTripper lets client-go find the transport below, for example to close its
// connections.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.base }

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if !hook.Gets[*hook.APIAnswer](t.Hook) {
		resp, err := t.attributed(req)
		return followed(req, resp, err)
	}
	began := time.Now()
	resp, err := t.attributed(req)
	a := &hook.APIAnswer{
		Method: req.Method, Host: req.URL.Host, Took: time.Since(began), Err: err,
		Watch: strings.Contains(req.URL.RawQuery, "watch=true") || strings.Contains(req.URL.RawQuery, "watch=1"),
	}
	if err == nil {
		a.Status = resp.StatusCode
	}
	t.Hook.Send(a)
	return followed(req, resp, err)
}

func (t *roundTripper) attributed(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	l := journal.FromContext(ctx)
	request, precondition := t.server.read(req)
	if l == nil {
		resp, _, err := t.send(req, &request, "")
		if err == nil {
			t.rights.used(req, &request, resp)
		}
		return resp, err
	}
	e := &exchange{Options: &t.Options, buffers: &t.server.buffers, ledger: l, term: fence.FromContext(ctx), precondition: precondition}
	if err := l.Begin(&e.entry, request); err != nil {
		closeBody(req)
		return nil, err
	}
	controller := l.Origin().Controller
	sign(req, t.userAgent, controller)
	ended := ctx.Err() != nil
	resp, unsent, err := t.send(req, e.entry.Request(), controller)
	if err != nil {
		e.failed(req, err, unsent || ended)
		return resp, err
	}
	t.rights.used(req, e.entry.Request(), resp)
	e.answered(req, resp)
	return resp, nil
}

var errNoTerm = errors.New("its context has no term of leadership; derive the context from the one of the Reconcile or of the leading work, " +
	"or use term.Without if a replica that does not lead may send it, too")

// send sends a request if it passes the fence. unsent reports that certainly nothing was sent.
func (t *roundTripper) send(req *http.Request, r *ledger.Request, controller string) (resp *http.Response, unsent bool, err error) {
	if under := fence.FromContext(req.Context()); under != nil {
		resp, err = under.RoundTrip(t.base, req, t.traced)
	} else if err = t.unfenced(req, r, controller); err != nil {
		closeBody(req)
	} else {
		resp, err = t.base.RoundTrip(req)
	}
	if err == nil {
		return resp, false, nil
	}
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		return resp, !refused.Uncertain, &term.FencedError{Controller: controller, Request: *r, Uncertain: refused.Uncertain, Err: refused.Err}
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
	if fence.Decided(req.Context()) || !r.Stores() || !t.RequireTerm && !hook.Gets[*hook.Unfenced](t.Hook) {
		return nil
	}
	event := &hook.Unfenced{APIRequest: eventOf(r, controller, "")}
	if t.RequireTerm {
		event.Err = &term.FencedError{Controller: controller, Request: *r, Err: errNoTerm}
	}
	t.Hook.Send(event)
	return event.Err
}

func neverSent(err error) bool {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || errors.As(err, &certificate)
}

// Disconnect closes the connections below rt, each when it becomes idle, or until ctx ends.
func Disconnect(ctx context.Context, rt http.RoundTripper) {
	utilnet.CloseIdleConnectionsFor(rt) // also of a transport of the user
	if own := connection.Below[*roundTripper](rt); own != nil {
		own.connections.Disconnect(ctx)
	}
}
