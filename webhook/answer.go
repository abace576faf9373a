// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
)

type handler struct {
	webhooks *Webhooks
	hook     *hook.Hook
	failures rate.Sometimes // limits log lines about failures, which any client can cause
}

func newHandler(w *Webhooks, h *hook.Hook) *handler {
	return &handler{webhooks: w, hook: h, failures: rate.Sometimes{First: 20, Interval: 10 * time.Second}}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := h.webhooks.endpoint(r.URL.Path)
	if e == nil {
		http.Error(w, "no webhook has the path "+strconv.Quote(r.URL.Path)+"; its configuration may be of another version of the operator", http.StatusNotFound)
		return
	}
	x := &exchange{handler: h, endpoint: e, w: w, began: time.Now(), late: make(chan struct{})}
	h.hook.Send(&hook.WebhookRequest{Path: e.path, Webhook: e.name, Conversion: e.conversion})
	timeout, err := timeoutOf(r, e)
	if err != nil {
		x.fail(r.Context(), err)
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), x.began.Add(timeout-reserve(timeout)))
	defer cancel()
	body, err := x.receive(ctx, r)
	defer func() { x.claim.give() }()
	if err != nil {
		x.fail(r.Context(), err)
		return
	}
	x.serve(r.Context(), ctx, body, timeout)
}

// exchange is a request with its answer, which the handler or, if it is late, a timer writes.
type exchange struct {
	*handler
	*endpoint

	w        http.ResponseWriter
	began    time.Time
	claim    *claim        // for the body and the answer
	answered atomic.Bool   // the answer is written, or is being written
	late     chan struct{} // closed after the answer of the timer
}

// receive reads the body when the budget allows it.
func (x *exchange) receive(ctx context.Context, r *http.Request) (body []byte, err error) {
	size, err := checkBody(r)
	if err != nil {
		return nil, err
	}
	if x.claim, err = x.webhooks.bodies.take(ctx, size, x.cut); err != nil {
		return nil, err
	}
	body, err = readBody(r)
	return body, cmp.Or(x.claim.wait(nil), err)
}

// cut ends reads from the client and writes to it.
func (x *exchange) cut() {
	control := http.NewResponseController(x.w)
	_ = control.SetReadDeadline(time.Now()) // a test's writer may not support it
	_ = control.SetWriteDeadline(time.Now())
}

// serve calls the endpoint with limited, which ends before the timeout. The client has an answer
// within the timeout even if the endpoint ignores its context; serve still waits for it.
func (x *exchange) serve(ctx, limited context.Context, body []byte, timeout time.Duration) {
	end := x.began.Add(timeout)
	timer := time.AfterFunc(time.Until(end.Add(-reserve(timeout)/2)), func() {
		defer close(x.late)
		x.fail(ctx, fmt.Errorf("the function has not returned within %s although its context has ended; return when ctx is done", timeout-reserve(timeout)/2))
	})
	defer func() {
		if !timer.Stop() {
			<-x.late
		}
	}()
	re, err := x.call(limited, body)
	if err != nil {
		x.fail(ctx, err)
		return
	}
	x.reply(re)
}

// errPanicked is the error of a function that has panicked.
var errPanicked = errors.New("the function has panicked; the log of the operator has its stack")

// recovered turns a panic into errPanicked. Call it with defer.
func recovered(ctx context.Context, err *error) {
	if p := recover(); p != nil {
		logging.Of(ctx).Error("a webhook has panicked", "panic", p, "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

func (x *exchange) call(ctx context.Context, body []byte) (re *reply, err error) {
	returned := false
	defer func() {
		if !returned && err == nil { // the goroutine ends, and its connection
			x.fail(ctx, fmt.Errorf("the function %w", run.ErrExited))
		}
	}()
	defer recovered(ctx, &err)
	re, err = x.answer(ctx, body)
	returned = true
	return re, err
}

func (x *exchange) reply(re *reply) {
	if x.answered.CompareAndSwap(false, true) {
		_ = x.claim.wait(x.cut)
		x.write(http.StatusOK, "application/json", re.text)
		x.done(hook.WebhookAnswer{Code: http.StatusOK, Allowed: re.allowed, Reason: re.reason})
	}
}

// fail writes an answer other than 200, unless there is an answer. The API server then applies the
// failure policy.
func (x *exchange) fail(ctx context.Context, err error) {
	if !x.answered.CompareAndSwap(false, true) {
		return
	}
	code := codeOf(err)
	header := x.w.Header()
	header.Set("Connection", "close") // because a late function blocks its connection
	header.Set("X-Content-Type-Options", "nosniff")
	switch code {
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodPost)
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", "1") // the API server then tries again, within its timeout
	}
	x.write(code, "text/plain; charset=utf-8", []byte("webhook "+x.name+": "+err.Error()))
	_ = http.NewResponseController(x.w).Flush()
	var due bool
	x.failures.Do(func() { due = true })
	log := logging.Of(ctx)
	switch {
	case !due:
	case errors.Is(ctx.Err(), context.Canceled): // also by a stop that closes its connection
		log.Info("a call of a webhook was given up by its caller", "webhook", x.name, "err", err)
	default:
		log.Error("a call of a webhook has failed", "webhook", x.name, "code", code, "err", err)
	}
	x.done(hook.WebhookAnswer{Code: code, Panicked: errors.Is(err, errPanicked)})
}

func (x *exchange) write(code int, media string, text []byte) {
	header := x.w.Header()
	header.Set("Content-Type", media)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	x.w.WriteHeader(code)
	_, _ = x.w.Write(text) // an error means that the client has left
}

func (x *exchange) done(a hook.WebhookAnswer) {
	a.WebhookRequest = hook.WebhookRequest{Path: x.path, Webhook: x.name, Conversion: x.conversion}
	a.Took = time.Since(x.began)
	x.hook.Send(&a)
}
