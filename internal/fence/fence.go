// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// ErrReturned is the cause of the end of a term, or a part, that is not lost: its work has
// returned. The error of Trusted then wraps it.
var ErrReturned = errors.New("the work under it has returned")

// RefusedError is the error of a request that does not pass. The transport makes a term.FencedError
// of it.
type RefusedError struct {
	// Uncertain reports that parts of the request may have been sent.
	Uncertain bool
	// Err is the reason.
	Err error
}

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

type fence struct {
	name  string // of the term or part, for errors
	whole *fence // of a part, else nil
	done  chan struct{}

	mu      sync.Mutex // guards the fields below, and the passages; a part's is locked first
	trust   trust
	start   time.Time // when the last renewal was sent
	ended   error
	waiting map[*passage]struct{} // not on the wire yet
	timer   *time.Timer           // for the end of the trust, perhaps before an extension
}

// Extend is term.Term.Extend. It has no effect on a part.
func (f *fence) Extend(start time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if start.After(f.start) {
		f.start = start
		f.trust.lost = false
	}
}

// End is term.Term.End.
func (f *fence) End(cause error) {
	cause = cmp.Or(cause, ErrReturned)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil {
		return
	}
	if errors.Is(cause, ErrReturned) {
		cause = cmp.Or(f.refusalLocked(), cause) // it may have been lost before
	}
	f.ended = fmt.Errorf("%s has ended: %w", f.name, cause)
	close(f.done)
	if f.timer != nil {
		f.timer.Stop()
	}
	f.refuseLocked(f.ended)
}

func (f *fence) trusted() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refusalLocked()
}

func (f *fence) until() time.Time {
	if f.whole != nil {
		return f.whole.until()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.start.Add(f.trust.limit)
}

var errNotRenewed = errors.New("the Lease was not renewed in time")

func (f *fence) refusalLocked() error {
	if f.ended != nil {
		return f.ended
	}
	if f.whole != nil {
		return f.whole.trusted()
	}
	now := time.Now()
	mono, wall := now.Sub(f.start), now.Round(0).Sub(f.start.Round(0))
	if f.trust.over(mono, wall) {
		return fmt.Errorf("%s is not trusted any more: %w: it has been %s, at most %s are allowed",
			f.name, errNotRenewed, max(mono, wall).Round(time.Millisecond), f.trust.limit)
	}
	return nil
}

// trust is the arithmetic of a term, without a clock or a lock.
type trust struct {
	limit time.Duration
	lost  bool
}

// over reports whether the trust is over. mono and wall are the times since its start. It stays
// over even if a clock is set back.
func (t *trust) over(mono, wall time.Duration) bool {
	t.lost = t.lost || mono >= t.limit || wall >= t.limit
	return t.lost
}

// RoundTrip sends a request through base if it passes the fence, else it returns a *[RefusedError].
// Set traced if base calls the httptrace hooks of the request's context: see
// term.FencedError.Uncertain.
func (f *fence) RoundTrip(base http.RoundTripper, req *http.Request, traced bool) (*http.Response, error) {
	if f.whole != nil {
		return f.whole.RoundTrip(behind{f, base, traced}, req, traced)
	}
	return f.pass(base, req, traced)
}

// behind sends requests through the fence of a part. They have passed the fence of the whole.
type behind struct {
	part   *fence
	base   http.RoundTripper
	traced bool
}

// RoundTrip implements http.RoundTripper.
func (b behind) RoundTrip(req *http.Request) (*http.Response, error) {
	return b.part.pass(b.base, req, b.traced)
}

func (f *fence) pass(base http.RoundTripper, req *http.Request, traced bool) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	p, first := &passage{fence: f, cancel: cancel}, waiting
	if !traced {
		first = connected
	}
	if why := f.admit(p, first); why != nil {
		cancel(nil)
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &RefusedError{Err: why}
	}
	p.trace = httptrace.ClientTrace{GotConn: p.gotConn, WroteHeaders: p.wroteHeaders}
	resp, err := base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &p.trace)))
	stage, refused := f.leave(p)
	if err == nil {
		resp.Request = req
		p.release(resp)
		return resp, nil
	}
	cancel(nil)
	if refused != nil {
		err = &RefusedError{Uncertain: stage != waiting, Err: refused}
	}
	return resp, err
}

type stage uint8

const (
	waiting   stage = iota // for a connection
	connected              // parts of it may be sent
	sent                   // at least its head: it goes on
)

// passage is a request on its way through the fence, and later its answer's body.
type passage struct {
	fence  *fence
	cancel context.CancelCauseFunc // of the request's context
	trace  httptrace.ClientTrace
	body   io.ReadCloser

	stage   stage // guarded by the fence's mutex, like refused
	refused error
}

// admit lets a request reach a stage, or returns the reason of a refusal. It runs again with a
// connection, which may have taken long while the timer's clock stood still.
func (f *fence) admit(p *passage, s stage) (refused error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.refused != nil {
		return p.refused
	}
	if p.refused = f.refusalLocked(); p.refused != nil {
		delete(f.waiting, p)
		return p.refused
	}
	p.stage = s
	f.waiting[p] = struct{}{} // also if the transport sends a request again
	f.armLocked()
	return nil
}

func (f *fence) armLocked() {
	if f.timer == nil && f.whole == nil { // the whole has a timer
		f.timer = time.AfterFunc(time.Until(f.start.Add(f.trust.limit)), f.expire)
	}
}

func (f *fence) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = nil
	if why := f.refusalLocked(); why != nil {
		f.refuseLocked(why)
	} else if len(f.waiting) > 0 {
		f.armLocked()
	}
}

func (f *fence) refuseLocked(why error) {
	for p := range f.waiting {
		p.refused = why
		p.cancel(why)
	}
	clear(f.waiting)
}

func (f *fence) leave(p *passage) (stage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, p)
	return p.stage, p.refused
}

func (p *passage) gotConn(info httptrace.GotConnInfo) {
	why := p.fence.admit(p, connected)
	if why == nil {
		return
	}
	// HTTP/2 reads the context before it writes. HTTP/1 does not, but the connection belongs to
	// this request alone: closing it prevents the write.
	p.cancel(why)
	if c, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); !ok || c.ConnectionState().NegotiatedProtocol != "h2" {
		info.Conn.Close()
	}
}

func (p *passage) wroteHeaders() {
	p.fence.mu.Lock()
	defer p.fence.mu.Unlock()
	if p.refused == nil {
		p.stage = sent
		delete(p.fence.waiting, p)
	}
}

func (p *passage) release(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		p.cancel(nil)
		return
	}
	p.body = resp.Body
	resp.Body = p
}

func (p *passage) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if err != nil {
		p.cancel(nil)
	}
	return n, err
}

func (p *passage) Close() error {
	err := p.body.Close()
	p.cancel(nil)
	return err
}
