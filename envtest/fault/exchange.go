// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exchange is a running request and its answer.
type exchange struct {
	proxy *Proxy
	conn  net.Conn // nil: none of ours, as in a test of the handler

	// These are guarded by proxy.mu.
	stamp   uint64 // arrival order
	request Request
	faults  []attachment
	severed bool
	ended   bool

	mu     sync.Mutex          // guards the fields below
	writer http.ResponseWriter // nil once the handler has returned
	cancel context.CancelCauseFunc
}

// attachment is a rule that matches a request.
type attachment struct {
	*Fault
	since time.Time // the later of the request's and the rule's arrival
}

// begin registers a request that has arrived. It returns nil after f.close.
func (f *front) begin(w http.ResponseWriter, h *http.Request) *exchange {
	p := f.proxy
	x := &exchange{proxy: p, request: parse(h), writer: w}
	x.conn, _ = h.Context().Value(connKey{}).(net.Conn)
	p.mu.Lock()
	if f.closed {
		p.mu.Unlock()
		return nil
	}
	f.handlers.Add(1)
	p.stamp++
	x.stamp = p.stamp
	p.underWay = append(p.underWay, x)
	candidates := slices.Clone(p.faults) // later rules look for x themselves
	p.logLocked(x)
	r := x.request.copyLocked()
	p.mu.Unlock()

	candidates = slices.DeleteFunc(candidates, func(f *Fault) bool { return !f.rule.Match.matches(r) })
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range candidates {
		fault.attachLocked(x)
	}
	return x
}

func (p *Proxy) logLocked(x *exchange) {
	r := &x.request
	kind := Kind{r.Verb, r.Group, r.Resource, r.Subresource}
	if r.Resource == "" {
		kind.Group = ""
	}
	p.counts[kind]++
	p.log = append(p.log, r)
	if len(p.log) > p.options.LogSize {
		p.log[0] = nil
		p.log = p.log[1:]
	}
}

// serve handles a request from start to end, and leaves nothing behind. For broken connections it
// panics with http.ErrAbortHandler, as net/http requires.
func (x *exchange) serve(h *http.Request) {
	ctx, cancel := context.WithCancelCause(h.Context())
	x.mu.Lock()
	x.cancel = cancel
	x.mu.Unlock()
	var cutter sync.WaitGroup
	cutter.Go(func() { x.cutInTime(ctx) })
	defer func() {
		cancel(errEnded)
		cutter.Wait()
		x.end()
	}()
	// An HTTP/1.1 server detects the client's disconnect only after the body has been read.
	body, err := io.ReadAll(h.Body)
	if err == nil {
		err = x.before(ctx)
	}
	var refusal *apierrors.StatusError
	switch {
	case errors.As(err, &refusal):
		x.refuse(h, refusal)
	case err != nil:
		x.abort()
	case h.Header.Get("Upgrade") != "":
		x.refuse(h, errUpgrade)
	default:
		x.forward(ctx, h, body)
	}
}

// end publishes the result of the request.
func (x *exchange) end() {
	x.mu.Lock()
	x.writer = nil
	x.mu.Unlock()
	p := x.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	x.ended = true
	x.request.Ended = time.Now()
	p.underWay = slices.DeleteFunc(p.underWay, func(other *exchange) bool { return other == x })
	for _, f := range x.faults {
		delete(f.held, x)
		f.ended++
	}
	p.counters.broadcastLocked()
}

// delivers reports whether the request outlives its client.
func (x *exchange) delivers() bool {
	x.proxy.mu.Lock()
	defer x.proxy.mu.Unlock()
	return slices.ContainsFunc(x.faults, func(f attachment) bool { return f.rule.Deliver })
}

// before applies the effects that precede the API server. It returns an errors.StatusError to
// refuse the request, and another error to break its connection.
func (x *exchange) before(ctx context.Context) error {
	p := x.proxy
	p.mu.Lock()
	faults := slices.Clone(x.faults) // later rules apply only to the answer
	p.mu.Unlock()
	for _, f := range faults {
		if err := x.holdAndDelay(ctx, f); err != nil {
			return err
		}
		switch r := f.rule; {
		case r.Refuse != nil:
			return r.Refuse
		case r.Cut:
			x.note("cut")
			return errCut
		case r.Hang:
			x.note("hang")
			return p.wait(ctx, &p.rules, nil, func(time.Time) (bool, time.Time) { return false, time.Time{} })
		}
	}
	return nil
}

func (x *exchange) holdAndDelay(ctx context.Context, f attachment) error {
	if f.rule.Hold {
		x.note("hold")
		err := x.proxy.wait(ctx, &x.proxy.rules, nil, func(time.Time) (bool, time.Time) {
			return !x.withheldLocked(f, x.stamp), time.Time{}
		})
		if err != nil {
			return err
		}
	}
	if f.rule.Delay == 0 {
		return nil
	}
	x.note("delay " + f.rule.Delay.String())
	due := time.Now().Add(f.rule.Delay)
	return x.proxy.wait(ctx, &x.proxy.rules, nil, func(now time.Time) (bool, time.Time) { return f.removed || !now.Before(due), due })
}

// withheldLocked reports whether f withholds the item with this stamp, and updates f's counter.
func (x *exchange) withheldLocked(f attachment, stamp uint64) bool {
	withheld := !f.removed && stamp > f.released
	_, counted := f.held[x]
	switch {
	case withheld && !counted:
		f.held[x] = struct{}{}
		x.proxy.counters.broadcastLocked()
	case !withheld && counted:
		delete(f.held, x)
	}
	return withheld
}

// forward sends the request to the API server.
func (x *exchange) forward(ctx context.Context, h *http.Request, body []byte) {
	c, ours := x.proxy.clientOf(x.request.token)
	h = h.WithContext(ctx)
	h.ContentLength, h.TransferEncoding = int64(len(body)), nil
	h.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	h.Body, _ = h.GetBody()
	reverse := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(x.proxy.target)
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			if ours {
				r.Out.Header.Del("Authorization")
			}
		},
		Transport:      c.transport,
		FlushInterval:  -1, // each chunk at once
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: func(answer *http.Response) error { return x.answer(ctx, answer) },
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if ctx.Err() == nil && !errors.Is(err, errCut) {
				x.note(fmt.Sprintf("unreachable: %v", err))
			}
			x.abort()
		},
	}
	reverse.ServeHTTP(x.responseWriter(), h)
}

// answer receives the header of the API server's answer and returns when to forward it. The body is
// read through a line from then on.
func (x *exchange) answer(ctx context.Context, answer *http.Response) error {
	l := newLine(x, answer.Body)
	answer.Body = l.reader(ctx)
	x.proxy.mu.Lock()
	lose := slices.ContainsFunc(x.faults, func(f attachment) bool { return f.rule.Lose && !f.removed })
	x.proxy.mu.Unlock()
	if lose {
		x.note("lose")
		return errCut
	}
	if _, err := l.next(ctx); err != nil { // the header is the first part
		return err
	}
	x.setStatus(answer.StatusCode)
	return nil
}

// refuse answers with an error in the API server's format.
func (x *exchange) refuse(h *http.Request, refusal *apierrors.StatusError) {
	status := refusal.ErrStatus
	if status.Code < 400 || status.Code > 599 {
		status.Code = http.StatusInternalServerError
	}
	status.Status = metav1.StatusFailure
	x.note(fmt.Sprintf("refuse %d", status.Code))
	x.setStatus(int(status.Code))
	writeStatus(x.responseWriter(), h.Header.Get("Accept"), status)
}

func (x *exchange) responseWriter() http.ResponseWriter {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.writer
}

func (x *exchange) note(effect string) {
	x.proxy.mu.Lock()
	defer x.proxy.mu.Unlock()
	x.request.noteLocked(effect)
}

func (x *exchange) setStatus(code int) {
	x.proxy.mu.Lock()
	defer x.proxy.mu.Unlock()
	x.request.Status = code
}
