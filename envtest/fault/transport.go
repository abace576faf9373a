// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// Transport returns an http.RoundTripper that applies the rules to its requests and sends them with
// next. Without sockets, it works in a testing/synctest bubble. It fits rest.Config.Wrap. A cut
// connection is the error syscall.ECONNRESET. Match.Config compares bearer tokens.
func (r *Rules) Transport(next http.RoundTripper) http.RoundTripper { return &transport{r, next} }

type transport struct {
	rules *Rules
	next  http.RoundTripper
}

// WrappedRoundTripper is for clients that close idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *transport) RoundTrip(h *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(h.Context())
	x := newExchange(t.rules, h)
	x.hangUp = func() { cancel(errCut) }
	if !t.rules.begin(x) {
		cancel(ErrStopped)
		if h.Body != nil {
			_ = h.Body.Close() // nothing was read
		}
		return nil, ErrStopped
	}
	if x.delivers() {
		return t.deliver(ctx, cancel, x, h)
	}
	x.setCancel(cancel)
	return t.send(ctx, x, h)
}

// send sends the request, which ends with the answer's body.
func (t *transport) send(ctx context.Context, x *exchange, h *http.Request) (answer *http.Response, err error) {
	if h = h.WithContext(ctx); len(x.attached()) > 0 {
		h, err = buffered(h)
	}
	if err == nil {
		answer, err = x.roundTrip(h, t.next)
	}
	if err != nil {
		err = broken(ctx, err)
		x.end()
		return nil, err
	}
	answer.Body = &body{answer.Body, x, func(err error) error { return broken(ctx, err) }}
	return answer, nil
}

// deliver sends a request that outlives its client, which ends with client.
func (t *transport) deliver(client context.Context, cancel context.CancelCauseFunc, x *exchange, h *http.Request) (*http.Response, error) {
	h, err := buffered(h)
	if err != nil {
		cancel(err)
		x.end()
		return nil, err
	}
	lasting, stop := context.WithCancelCause(context.WithoutCancel(client))
	x.setCancel(stop)
	type result struct {
		*http.Response
		error
	}
	results := make(chan result)
	t.rules.lasting.Go(func() {
		answer, err := t.send(lasting, x, h)
		select {
		case results <- result{answer, err}:
		case <-client.Done():
			if err == nil {
				_ = answer.Body.Close() // its client is gone
			}
		}
	})
	select {
	case r := <-results:
		// From here the answer ends with its client.
		context.AfterFunc(client, func() { stop(context.Cause(client)) })
		context.AfterFunc(lasting, func() { cancel(errEnded) })
		return r.Response, r.error
	case <-client.Done():
		return nil, broken(client, cause(client))
	}
}

func (x *exchange) stop() {
	x.mu.Lock()
	if x.cancel != nil {
		x.cancel(ErrStopped)
	}
	x.mu.Unlock()
	x.rules.mu.Lock()
	l := x.line
	x.rules.mu.Unlock()
	if l != nil {
		_ = l.Close() // its client gets ErrStopped
	}
}

func broken(ctx context.Context, err error) error {
	if reason := context.Cause(ctx); errors.Is(reason, errCut) || errors.Is(reason, ErrStopped) {
		return reason
	}
	return err
}

type body struct {
	io.ReadCloser
	x      *exchange
	reason func(error) error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = b.reason(err)
		}
		b.x.end()
	}
	return n, err
}

func (b *body) Close() error {
	b.x.end() // first, because it ends the request's context
	return b.ReadCloser.Close()
}
