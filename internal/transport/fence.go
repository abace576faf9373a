// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

var errNoTerm = errors.New("its context has no term of leadership; make it with a context that comes from that of the Reconcile or " +
	"of the work that leads, or with term.Without if a replica that does not lead may make it, too")

// send makes a request if it passes the fence. unsent reports that nothing was sent for certain. r
// is what the request is, nil if that is not known yet.
func (t *roundTripper) send(req *http.Request, r *ledger.Request, controller string) (resp *http.Response, unsent bool, err error) {
	if under := term.Of(req.Context()); under != nil {
		resp, err = under.RoundTrip(t.base, req, t.traced)
	} else if err = t.unfenced(req, r, controller); err != nil {
		closeBody(req)
	} else {
		resp, err = t.base.RoundTrip(req)
	}
	if err == nil {
		return resp, false, nil
	}
	if fenced, ok := errors.AsType[*term.FencedError](err); ok {
		fenced.Controller, fenced.Request = controller, *t.known(req, r)
		return resp, !fenced.Uncertain, err
	}
	return resp, neverSent(err), err
}

// closeBody closes the body of a request that is not made, as a transport must.
func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

func (t *roundTripper) known(req *http.Request, r *ledger.Request) *ledger.Request {
	if r == nil {
		read, _ := t.read(req)
		return &read
	}
	return r
}

// unfenced reports a request that may write and has no term, or refuses it.
func (t *roundTripper) unfenced(req *http.Request, r *ledger.Request, controller string) error {
	if term.Decided(req.Context()) || !t.Strict && t.Hooks.Unfenced == nil || req.Method == http.MethodGet {
		return nil
	}
	r = t.known(req, r)
	if !r.Stores() {
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

func eventOf(r *ledger.Request, controller, unknown string) hook.APIRequest {
	return hook.APIRequest{
		Controller: controller, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: r.Subresource,
		DryRun: r.DryRun, Status: r.Status, Took: r.Took, Err: r.Err, Unknown: unknown,
	}
}

// neverSent reports whether an error came before there was a connection to send anything over.
func neverSent(err error) bool {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || errors.As(err, &certificate)
}
