// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"io"
	"net/http"
	"net/url"
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
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// Options configures Wrap.
type Options struct {
	Codecs serializer.CodecFactory // decode the written objects that a ledger wants
	Hooks  hook.Client
	Strict bool // refuse requests that may write and have no term
}

// roundTripper enters requests in the ledger of their context, and lets them pass while the term in
// it is trusted. Of a request it changes only the user agent, of an answer nothing, except that some
// redirects are errors.
type roundTripper struct {
	Options

	base    http.RoundTripper
	server  *url.URL // without a slash at its end
	origin  string   // the server as text
	traced  bool     // base is an *http.Transport, which reports when it has a connection
	agents  agents
	buffers sync.Pool // of *[]byte
}

// Wrap puts the transport into cfg, below all that wraps, so that nothing waits between it and the
// connection. A config that comes from a client.Client has one already, which then gets the options.
func Wrap(cfg *rest.Config, o Options) error {
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return err
	}
	if err := checkEncrypted(cfg, server); err != nil {
		return err
	}
	server.Path = strings.TrimSuffix(server.Path, "/")
	userAgent := cfg.UserAgent
	cfg.WrapTransport = transport.Wrappers(func(base http.RoundTripper) http.RoundTripper {
		t := &roundTripper{
			Options: o, base: base, server: server, origin: server.Scheme + "://" + server.Host + server.Path,
			agents: agents{configured: userAgent},
		}
		for rt := base; rt != nil; {
			switch own := rt.(type) {
			case *roundTripper: // cfg was another Client's, whose wrapper this is
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

// inherit adds the options of another Client. It is called before any request.
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

// WrappedRoundTripper lets client-go find the transport below, to close its idle connections for instance.
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

// attributed makes a request, and enters it in the ledger of its context, if it has one.
func (t *roundTripper) attributed(req *http.Request) (*http.Response, error) {
	l := ledger.Of(req.Context())
	if l == nil {
		t.unattributed(req)
		resp, _, err := t.send(req, nil, "")
		return resp, err
	}
	e := exchange{roundTripper: t, ledger: l, term: term.Of(req.Context())}
	if err := e.begin(req); err != nil {
		closeBody(req)
		return nil, err
	}
	controller := l.Origin().Controller
	t.agents.sign(req, controller)
	ended := req.Context().Err() != nil
	resp, unsent, err := t.send(req, e.entry.Request(), controller)
	if err != nil {
		e.failed(err, unsent || ended)
		return resp, err
	}
	e.answered(req, resp)
	return resp, nil
}

// unattributed reports a request that may write and has no ledger, unless that is on purpose.
func (t *roundTripper) unattributed(req *http.Request) {
	ctx := req.Context()
	onPurpose := term.Decided(ctx) && term.Of(ctx) == nil || ctx.Value(ledger.ContextKey{}) != nil
	if onPurpose || t.Hooks.Unattributed == nil || req.Method == http.MethodGet {
		return
	}
	if r := t.known(req, nil); r.Stores() {
		event := eventOf(r, "", "")
		event.UserAgent = req.UserAgent()
		t.Hooks.Unattributed(event)
	}
}

// read returns what a request is, and the UID that it insists on when it deletes.
func (t *roundTripper) read(req *http.Request) (ledger.Request, string) {
	path, prefix := req.URL.Path, ""
	if below, ok := strings.CutPrefix(path, t.server.Path); ok && strings.HasPrefix(below, "/") {
		path, prefix = below, t.server.Path
	}
	target := apipath.Parse(req.Method, path, req.URL.RawQuery)
	r := ledger.Request{
		Verb: target.Verb, Group: target.Group, Version: target.Version, Resource: target.Resource, Subresource: target.Subresource,
		Namespace: target.Namespace, Name: target.Name, Host: t.origin, Path: req.URL.Path, Started: time.Now(),
	}
	if req.URL.Host != t.server.Host || req.URL.Scheme != t.server.Scheme || prefix != t.server.Path {
		r.Host = req.URL.Scheme + "://" + req.URL.Host + prefix
	}
	if r.Resource == "namespaces" {
		r.Namespace = ""
	}
	if !r.Mutates() {
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

// sent shows f the beginning of a request's body, if the request can return it once more.
func (t *roundTripper) sent(getBody func() (io.ReadCloser, error), f func([]byte)) {
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

// bufferSize is how large a buffer is at first, and how much of a request's body is read.
const bufferSize = 16 << 10

// buffer returns an empty buffer of at least bufferSize.
func (t *roundTripper) buffer() *[]byte {
	if buf, ok := t.buffers.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, 0, bufferSize)
	return &buf
}

func (t *roundTripper) release(buf *[]byte) {
	if cap(*buf) <= 256<<10 { // the rare large one is not worth its memory
		*buf = (*buf)[:0]
		t.buffers.Put(buf)
	}
}
