// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"
)

// ErrFenced is what every [FencedError] is.
var ErrFenced = errors.New("refused by the fence")

var errNoTerm = errors.New("its context has no term of leadership; make it with a context that comes from that of the Reconcile or " +
	"of the work that leads, or with client.WithoutTerm if a replica that does not lead may make it, too")

// FencedError says that a request was not made, because it may be that somebody else leads. errors.Is finds [ErrFenced], and
// the cause with which the term was ended. Unless it was refused between the connection and the first byte, which a ledger calls
// Uncertain, nothing was sent.
type FencedError struct {
	// Controller made the request, empty if it was made without a ledger.
	Controller string
	// Request is what was to be sent.
	Request Request
	// Err is why it was not.
	Err error
}

// Error says who was refused what, and why.
func (e *FencedError) Error() string {
	s := ""
	if e.Controller != "" {
		s = "controller " + e.Controller + ": "
	}
	return s + "the request to " + e.Request.String() + " is " + ErrFenced.Error() + ": " + e.Err.Error()
}

// Unwrap returns why.
func (e *FencedError) Unwrap() error { return e.Err }

// Is makes errors.Is find ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// send makes a request, if it passes the fence. unsent says that nothing was sent for sure. r is what the request is, nil if
// that was not looked at yet.
func (t *ledgerTransport) send(req *http.Request, term *Term, said bool, r *Request, controller string) (resp *http.Response, unsent bool, err error) {
	if term == nil {
		if err := t.unfenced(req, r, controller, said); err != nil {
			closeBody(req)
			return nil, true, err
		}
		resp, err = t.base.RoundTrip(req)
		return resp, neverSent(err), err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	p := &passage{term: term, cancel: cancel}
	if !t.traced {
		p.stage = connected
	}
	if why := term.enter(p); why != nil {
		cancel(nil)
		closeBody(req)
		return nil, true, t.refusal(req, r, controller, why)
	}
	p.trace = httptrace.ClientTrace{GotConn: p.gotConn, WroteHeaders: p.wroteHeaders}
	resp, err = t.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &p.trace)))
	unsent, why := term.leave(p)
	switch {
	case err == nil:
		resp.Request = req
		p.release(resp)
		return resp, false, nil
	case why != nil:
		cancel(nil)
		return resp, unsent, t.refusal(req, r, controller, why)
	default:
		cancel(nil)
		return resp, neverSent(err), err
	}
}

// closeBody closes the body of a request that is not made, as a transport must.
func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

func (t *ledgerTransport) refusal(req *http.Request, r *Request, controller string, why error) *FencedError {
	return &FencedError{Controller: controller, Request: *t.known(req, r), Err: why}
}

func (t *ledgerTransport) known(req *http.Request, r *Request) *Request {
	if r == nil {
		read, _ := t.read(req)
		return &read
	}
	return r
}

// unfenced tells of a request that may write and was given no term, or refuses it.
func (t *ledgerTransport) unfenced(req *http.Request, r *Request, controller string, said bool) error {
	if said || !t.strict && t.hooks.Unfenced == nil || req.Method == http.MethodGet {
		return nil
	}
	r = t.known(req, r)
	if !r.fenced() {
		return nil
	}
	event := r.event(controller, "")
	if t.strict {
		event.Err = t.refusal(req, r, controller, errNoTerm)
	}
	if t.hooks.Unfenced != nil {
		t.hooks.Unfenced(event)
	}
	return event.Err
}

// fenced says whether a request is one that only a leader may make. Reviews store nothing.
func (r *Request) fenced() bool {
	return r.mutates() && !r.DryRun && r.Group != "authorization.k8s.io" && r.Group != "authentication.k8s.io"
}

// stage is how far a request has come.
type stage uint8

const (
	waiting   stage = iota // for a connection
	connected              // what happens is not known for sure until it is sent
	sent                   // at least its head: left alone
)

// passage is a request under a term on its way through the fence, and later the body of the answer.
type passage struct {
	term   *Term
	cancel context.CancelCauseFunc // of the request's context
	trace  httptrace.ClientTrace
	body   io.ReadCloser

	stage   stage // guarded by the term's mutex, as is refused
	refused error
}

// enter lets a request wait, or says why not.
func (t *Term) enter(p *passage) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if why := t.refusalLocked(); why != nil {
		return why
	}
	t.waiting[p] = struct{}{}
	t.armLocked()
	return nil
}

// armLocked sees to it that what waits is looked at when the trust ends.
func (t *Term) armLocked() {
	switch left := time.Until(t.start.Add(t.trust.limit)); {
	case t.armed:
		return
	case t.timer == nil:
		t.timer = time.AfterFunc(left, t.expire)
	default:
		t.timer.Reset(left)
	}
	t.armed = true
}

// expire withdraws what still waits, unless the trust was extended.
func (t *Term) expire() {
	t.mu.Lock()
	t.armed = false
	var refused []*passage
	if why := t.refusalLocked(); why != nil {
		refused = t.withdrawLocked(why)
	} else if len(t.waiting) > 0 {
		t.armLocked()
	}
	t.mu.Unlock()
	cancelAll(refused)
}

// withdrawLocked refuses all that waits. The caller cancels it.
func (t *Term) withdrawLocked(why error) []*passage {
	var all []*passage
	for p := range t.waiting {
		p.refused = why
		all = append(all, p)
	}
	clear(t.waiting)
	return all
}

func cancelAll(refused []*passage) {
	for _, p := range refused {
		p.cancel(p.refused)
	}
}

// leave says that nothing waits any more. It returns why the request was refused, if it was, and whether that was before
// anything was sent.
func (t *Term) leave(p *passage) (unsent bool, refused error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, p)
	return p.stage == waiting, p.refused
}

// connect looks once more when there is a connection: nobody knows how long that took, and the clock by which a timer runs may
// have stood still.
func (t *Term) connect(p *passage) (refused error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.refused != nil {
		return p.refused
	}
	if p.refused = t.refusalLocked(); p.refused != nil {
		delete(t.waiting, p)
		return p.refused
	}
	p.stage = connected
	t.waiting[p] = struct{}{} // again, if what was sent before must be sent once more
	t.armLocked()
	return nil
}

func (p *passage) gotConn(info httptrace.GotConnInfo) {
	why := p.term.connect(p)
	if why == nil {
		return
	}
	// HTTP/2 looks at the context before it writes. HTTP/1 does not; its connection is this request's alone, and closing it is
	// what keeps the transport from writing.
	p.cancel(why)
	if c, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); !ok || c.ConnectionState().NegotiatedProtocol != "h2" {
		info.Conn.Close()
	}
}

func (p *passage) wroteHeaders() {
	p.term.mu.Lock()
	defer p.term.mu.Unlock()
	if p.refused == nil {
		p.stage = sent
		delete(p.term.waiting, p)
	}
}

// release lets the request's context go with the answer's body.
func (p *passage) release(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		p.cancel(nil)
		return
	}
	p.body = resp.Body
	resp.Body = p
}

// Read implements io.Reader.
func (p *passage) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if err != nil {
		p.cancel(nil)
	}
	return n, err
}

// Close implements io.Closer.
func (p *passage) Close() error {
	err := p.body.Close()
	p.cancel(nil)
	return err
}
