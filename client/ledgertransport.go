// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/apipath"
	"github.com/setpoint-dev/setpoint/internal/peek"
)

// ledgerTransport enters requests in the ledger of their context, and lets them pass while the term in it is trusted. Of a
// request it changes nothing but the user agent, of an answer nothing, except that some redirects are errors.
type ledgerTransport struct {
	base    http.RoundTripper
	prefix  string // of all paths: what a proxy in front of the API server adds
	scheme  string // and host: of all requests that do not go elsewhere
	host    string
	origin  string // scheme://host, and prefix
	codecs  serializer.CodecFactory
	hooks   hook.Client
	strict  bool // refuse what may write and has no term
	traced  bool // base is an *http.Transport, which says when it has a connection
	agents  agents
	buffers sync.Pool // of *[]byte
}

// keepLedger puts a ledgerTransport into cfg: below all that wraps, so that nothing waits between it and the connection. One
// is enough: a config that comes from a Client has it already.
func keepLedger(cfg *rest.Config, o Options, codecs serializer.CodecFactory) error {
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return err
	}
	if err := checkEncrypted(cfg, server); err != nil {
		return err
	}
	var hooks hook.Client
	if o.Hooks != nil {
		hooks = *o.Hooks
	}
	userAgent := cfg.UserAgent
	cfg.WrapTransport = transport.Wrappers(func(base http.RoundTripper) http.RoundTripper {
		t := &ledgerTransport{
			base: base, prefix: strings.TrimSuffix(server.Path, "/"), scheme: server.Scheme, host: server.Host, origin: server.Scheme + "://" + server.Host + strings.TrimSuffix(server.Path, "/"),
			codecs: codecs, hooks: hooks, strict: o.Strict, agents: agents{configured: userAgent},
		}
		for rt := base; rt != nil; {
			switch own := rt.(type) {
			case *ledgerTransport: // cfg was another Client's, whose wrapper this is
				own.inherit(hooks, o.Strict)
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

// inherit adds what the configuration's Client was made with to what a Client of its own wants. It is called before any request.
func (t *ledgerTransport) inherit(hooks hook.Client, strict bool) {
	t.strict = t.strict || strict
	if t.hooks.Answered == nil {
		t.hooks.Answered = hooks.Answered
	}
	if t.hooks.Requested == nil {
		t.hooks.Requested = hooks.Requested
	}
	if t.hooks.Unfenced == nil {
		t.hooks.Unfenced = hooks.Unfenced
	}
	if t.hooks.Unattributed == nil {
		t.hooks.Unattributed = hooks.Unattributed
	}
}

// WrappedRoundTripper lets client-go find the transport below, to close its idle connections for instance.
func (t *ledgerTransport) WrappedRoundTripper() http.RoundTripper { return t.base }

// RoundTrip implements http.RoundTripper.
func (t *ledgerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.hooks.Answered == nil {
		resp, err := t.enter(req)
		return followed(req, resp, err)
	}
	began := time.Now()
	resp, err := t.enter(req)
	a := hook.APIAnswer{
		Method: req.Method, Host: req.URL.Host, Took: time.Since(began), Err: err,
		Watch: strings.Contains(req.URL.RawQuery, "watch=true") || strings.Contains(req.URL.RawQuery, "watch=1"),
	}
	if err == nil {
		a.Status = resp.StatusCode
	}
	t.hooks.Answered(a)
	return followed(req, resp, err)
}

// enter enters a request in the ledger of its context, if it has one, and makes it.
func (t *ledgerTransport) enter(req *http.Request) (*http.Response, error) {
	l := ledgerOf(req.Context())
	term, said := termOf(req.Context())
	if l == nil {
		t.unattributed(req, term == nil && said)
		resp, _, err := t.send(req, term, said, nil, "")
		return resp, err
	}
	e := exchange{ledgerTransport: t, ledger: l, term: term}
	if !e.begin(req) {
		return nil, e.refuseLate(req)
	}
	t.agents.sign(req, l.origin.Controller)
	ended := req.Context().Err() != nil
	resp, unsent, err := t.send(req, term, said, &e.record.Request, l.origin.Controller)
	if err != nil {
		e.failed(err, unsent || ended)
		return resp, err
	}
	e.answered(req, resp)
	return resp, nil
}

// begin enters a request, and reports whether it may be made. What it may write is looked at later
// in the same piece of memory.
func (e *exchange) begin(req *http.Request) (admitted bool) {
	request, precondition := e.read(req)
	if request.mutates() {
		m := &mutation{}
		e.record, e.answer = &m.record, &m.answer
	} else {
		e.record = &record{}
	}
	e.record.Request, e.precondition = request, precondition
	return e.ledger.enter(e.record)
}

// mutation is what a request that may write takes.
type mutation struct {
	record record
	answer answer
}

// read says what a request is, and the uid that it insists on when it deletes.
func (t *ledgerTransport) read(req *http.Request) (Request, string) {
	path, prefix := req.URL.Path, ""
	if below, ok := strings.CutPrefix(path, t.prefix); ok && strings.HasPrefix(below, "/") {
		path, prefix = below, t.prefix
	}
	target := apipath.Parse(req.Method, path, req.URL.RawQuery)
	r := Request{
		Verb: target.Verb, Group: target.Group, Version: target.Version, Resource: target.Resource, Subresource: target.Subresource,
		Namespace: target.Namespace, Name: target.Name, Host: t.origin, Path: req.URL.Path, Started: time.Now(),
	}
	if req.URL.Host != t.host || req.URL.Scheme != t.scheme || prefix != t.prefix {
		r.Host = req.URL.Scheme + "://" + req.URL.Host + prefix
	}
	if r.Resource == "namespaces" {
		r.Namespace = ""
	}
	if !r.mutates() {
		return r, ""
	}
	r.DryRun = strings.Contains(req.URL.RawQuery, "dryRun") && req.URL.Query().Get("dryRun") != ""
	if !strings.HasPrefix(r.Verb, "delete") && r.Subresource != "eviction" {
		return r, ""
	}
	var uid string
	t.sent(req.GetBody, func(body []byte) {
		o, _ := peek.Read(peek.FormatOf(req.Header.Get("Content-Type")), body, peek.Options{})
		r.DryRun = r.DryRun || o.DryRun
		uid = string(o.Precondition)
	})
	return r, uid
}

// sent shows f the beginning of a request's body, if the request can give it once more.
func (t *ledgerTransport) sent(getBody func() (io.ReadCloser, error), f func([]byte)) {
	if getBody == nil {
		return
	}
	body, err := getBody()
	if err != nil {
		return
	}
	defer body.Close()
	buf := t.buffer()
	defer t.release(buf)
	all := (*buf)[:bufferSize]
	n := 0
	for err == nil && n < len(all) {
		var more int
		more, err = body.Read(all[n:])
		n += more
	}
	f(all[:n])
}

// bufferSize is how large a buffer is at first, and how much of a request's body is looked at.
const bufferSize = 16 << 10

// buffer returns an empty buffer of at least bufferSize.
func (t *ledgerTransport) buffer() *[]byte {
	if buf, ok := t.buffers.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, 0, bufferSize)
	return &buf
}

func (t *ledgerTransport) release(buf *[]byte) {
	if cap(*buf) <= 256<<10 { // the rare large one is not worth its memory
		*buf = (*buf)[:0]
		t.buffers.Put(buf)
	}
}

// neverSent says whether an error came before there was a connection to send anything over.
func neverSent(err error) bool {
	if err == nil {
		return false // what follows allocates
	}
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || errors.As(err, &certificate)
}

// exchange is one request with a ledger.
type exchange struct {
	*ledgerTransport

	ledger       *Ledger
	term         *Term // nil: none
	record       *record
	answer       *answer // for what may write
	precondition string  // the uid
}

// failed enters that there is no answer.
func (e *exchange) failed(err error, unsent bool) {
	e.update(func(r *record) {
		r.Took, r.Err = time.Since(r.Started), err
		switch {
		case unsent:
			r.write, r.Effect, r.Unknown = false, "", ""
		case r.write:
			r.Effect, r.Unknown = Uncertain, "there was no answer: "+err.Error()
		}
	})
	e.report()
}

// answered enters the head of the answer, and sees to it that the body of a write is looked at while the caller reads it.
func (e *exchange) answered(req *http.Request, resp *http.Response) {
	mayHaveWritten := false
	e.update(func(r *record) {
		r.Took, r.Status = time.Since(r.Started), resp.StatusCode
		switch code := resp.StatusCode; {
		case !r.write:
		case code >= 200 && code < 300:
			mayHaveWritten = true
			r.Effect, r.Unknown = Accepted, "the answer is not read yet"
		case code >= 500 && code != http.StatusNotImplemented:
			r.Effect, r.Unknown = Uncertain, "the answer is "+resp.Status
		default:
			r.write, r.Effect, r.Unknown = false, "", ""
		}
	})
	if !mayHaveWritten {
		e.report()
		return
	}
	format, encoding := peek.FormatOf(resp.Header.Get("Content-Type")), resp.Header.Get("Content-Encoding")
	switch {
	case resp.Body == nil || resp.Body == http.NoBody:
		e.unread("the answer is empty")
	case format == peek.Unknown:
		e.unread(fmt.Sprintf("the answer is %q, which cannot be read", resp.Header.Get("Content-Type")))
	case encoding != "" && encoding != "identity" && encoding != "gzip":
		e.unread(fmt.Sprintf("the answer is encoded as %q, which cannot be read", encoding))
	default:
		a := e.answer
		a.exchange, a.body, a.next = *e, resp.Body, firstLook
		a.format, a.contentType, a.gzip = format, resp.Header.Get("Content-Type"), encoding == "gzip"
		a.getBody, a.sentAs = req.GetBody, req.Header.Get("Content-Type")
		a.decode = e.wanted()
		resp.Body = a
	}
}

// unread enters why the answer to a write does not tell the version.
func (e *exchange) unread(why string) {
	e.update(func(r *record) { r.Unknown, r.UID = why, toUID(e.precondition) })
	e.report()
}

func (e *exchange) update(f func(*record)) {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	f(e.record)
}

// report calls the hook.
func (e *exchange) report() {
	e.leaveTrail()
	if e.hooks.Requested == nil {
		return
	}
	e.ledger.mu.Lock()
	event := e.record.event(e.ledger.origin.Controller, e.record.Unknown)
	e.ledger.mu.Unlock()
	e.hooks.Requested(event)
}
