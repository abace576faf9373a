// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/setpoint-dev/setpoint/ledger"
)

// ErrFenced is what every [FencedError] is.
var ErrFenced = errors.New("refused by the fence")

// FencedError is the error of a request that was refused because another process may lead.
// errors.Is finds [ErrFenced], and the cause with which the term was ended.
type FencedError struct {
	// Controller made the request, empty if it was made without a ledger.
	Controller string
	// Request is what was to be sent.
	Request ledger.Request
	// Uncertain reports that the request was refused between the connection and the first byte, so
	// that something may have been sent. Otherwise nothing was.
	Uncertain bool
	// Err is why the request was refused.
	Err error
}

// Error names the controller, the request and the reason.
func (e *FencedError) Error() string {
	s := ""
	if e.Controller != "" {
		s = "controller " + e.Controller + ": "
	}
	return s + "the request to " + e.Request.String() + " is " + ErrFenced.Error() + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *FencedError) Unwrap() error { return e.Err }

// Is makes errors.Is find ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// RoundTrip makes a request through base, if it passes the fence. It is for transports. traced
// reports that base calls the httptrace hooks of the request's context; otherwise a request that is
// refused on its way is Uncertain. A refused request fails with a *[FencedError] that has no
// Controller and no Request yet.
func (t *Term) RoundTrip(base http.RoundTripper, req *http.Request, traced bool) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	p := &passage{term: t, cancel: cancel}
	if !traced {
		p.stage = connected
	}
	if why := t.enter(p); why != nil {
		cancel(nil)
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &FencedError{Err: why}
	}
	p.trace = httptrace.ClientTrace{GotConn: p.gotConn, WroteHeaders: p.wroteHeaders}
	resp, err := base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &p.trace)))
	stage, refused := t.leave(p)
	if err == nil {
		resp.Request = req
		p.release(resp)
		return resp, nil
	}
	cancel(nil)
	if refused != nil {
		err = &FencedError{Uncertain: stage != waiting, Err: refused}
	}
	return resp, err
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

// leave returns how far the request has come, and why it was refused, if it was.
func (t *Term) leave(p *passage) (stage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, p)
	return p.stage, p.refused
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
