// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type exchange struct {
	rules *Rules

	// guarded by rules.mu
	stamp   uint64        // arrival order
	request *Request      // the log keeps it after the exchange
	faults  []*Fault      // the matching rules
	timers  []*time.Timer // of Rule.CutAfter
	line    *line         // of the answer's body, once it begins
	severed bool
	ended   bool

	mu     sync.Mutex // guards what follows
	hangUp func()     // breaks the client's connection; nil once the request has ended
	cancel context.CancelCauseFunc
}

func newExchange(r *Rules, h *http.Request) *exchange {
	request := parse(h)
	return &exchange{rules: r, request: &request}
}

func (x *exchange) setCancel(cancel context.CancelCauseFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancel = cancel
}

// end may be called again, as a no-op.
func (x *exchange) end() {
	x.mu.Lock()
	x.hangUp = nil
	if x.cancel != nil {
		x.cancel(errEnded)
	}
	x.mu.Unlock()
	r := x.rules
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.ended {
		return
	}
	x.ended = true
	x.request.Ended = time.Now()
	r.underWay = slices.DeleteFunc(r.underWay, func(other *exchange) bool { return other == x })
	for _, f := range x.faults {
		delete(f.held, x)
		f.ended++
	}
	for _, t := range x.timers {
		t.Stop()
	}
	r.counters.broadcastLocked()
}

func (x *exchange) delivers() bool {
	return slices.ContainsFunc(x.attached(), func(f *Fault) bool { return f.rule.Deliver })
}

// attached returns the rules that apply now; later ones apply only to the answer.
func (x *exchange) attached() []*Fault {
	x.rules.mu.Lock()
	defer x.rules.mu.Unlock()
	return slices.Clone(x.faults)
}

func buffered(h *http.Request) (*http.Request, error) {
	var body []byte
	if h.Body != nil {
		var err error
		body, err = io.ReadAll(h.Body)
		_ = h.Body.Close() // it has been read
		if err != nil {
			return nil, err
		}
	}
	h = h.WithContext(h.Context())
	h.ContentLength, h.TransferEncoding = int64(len(body)), nil
	h.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	h.Body, _ = h.GetBody() // no error is possible
	return h, nil
}

func (x *exchange) roundTrip(h *http.Request, next http.RoundTripper) (*http.Response, error) {
	faults := x.attached()
	err := x.before(h.Context(), faults)
	var refusal *apierrors.StatusError
	switch {
	case errors.As(err, &refusal):
		return x.refuse(h, refusal), nil
	case err != nil:
		return nil, err
	}
	answer, err := x.changing(faults, next).RoundTrip(h)
	if err != nil {
		return nil, err
	}
	return x.answer(h.Context(), answer)
}

// before returns an errors.StatusError to refuse the request, and another error to break its
// connection.
func (x *exchange) before(ctx context.Context, faults []*Fault) error {
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
			return x.rules.wait(ctx, &x.rules.changes, nil, func(time.Time) (bool, time.Time) { return false, time.Time{} })
		}
	}
	return nil
}

func (x *exchange) holdAndDelay(ctx context.Context, f *Fault) error {
	if f.rule.Hold {
		x.note("hold")
		err := x.rules.wait(ctx, &x.rules.changes, nil, func(time.Time) (bool, time.Time) {
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
	return x.rules.wait(ctx, &x.rules.changes, nil, func(now time.Time) (bool, time.Time) { return f.removed || !now.Before(due), due })
}

// withheldLocked reports whether f withholds the item with this stamp, and updates f's counter.
func (x *exchange) withheldLocked(f *Fault, stamp uint64) bool {
	withheld := !f.removed && stamp > f.released
	_, counted := f.held[x]
	switch {
	case withheld && !counted:
		f.held[x] = struct{}{}
		x.rules.counters.broadcastLocked()
	case !withheld && counted:
		delete(f.held, x)
	}
	return withheld
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(h *http.Request) (*http.Response, error) { return f(h) }

// changing returns next inside of the Rule.Change of faults; the first one is the outermost.
func (x *exchange) changing(faults []*Fault, next http.RoundTripper) http.RoundTripper {
	for _, f := range slices.Backward(faults) {
		if f.rule.Change == nil {
			continue
		}
		inner := next
		next = roundTripper(func(h *http.Request) (*http.Response, error) {
			x.note("change")
			h = h.Clone(h.Context())
			body := h.Body
			return f.rule.Change(h, roundTripper(func(h *http.Request) (*http.Response, error) {
				if h.Body != body { // its length is unknown
					h.ContentLength, h.GetBody = -1, nil
				}
				return inner.RoundTrip(h)
			}))
		})
	}
	return next
}

// answer returns the API server's answer when it may be forwarded. Its body is read through a line.
func (x *exchange) answer(ctx context.Context, answer *http.Response) (*http.Response, error) {
	if answer.Body == nil {
		answer.Body = http.NoBody
	}
	l := newLine(x, answer.Body)
	x.rules.mu.Lock()
	x.line = l
	l.fillLocked()
	lose := slices.ContainsFunc(x.faults, func(f *Fault) bool { return f.rule.Lose && !f.removed })
	x.rules.mu.Unlock()
	var err error
	if lose {
		x.note("lose")
		err = errCut
	} else {
		_, err = l.next(ctx) // the header is the first part
	}
	if err != nil {
		_ = l.Close() // nothing reads the body
		return nil, err
	}
	x.setStatus(answer.StatusCode)
	answer.Body = l.reader(ctx)
	return answer, nil
}

func (x *exchange) refuse(h *http.Request, refusal *apierrors.StatusError) *http.Response {
	answer := statusAnswer(h, refusal.ErrStatus)
	x.note(fmt.Sprintf("refuse %d", answer.StatusCode))
	x.setStatus(answer.StatusCode)
	return answer
}

func (x *exchange) note(effect string) {
	x.rules.mu.Lock()
	defer x.rules.mu.Unlock()
	x.request.noteLocked(effect)
}

func (x *exchange) setStatus(code int) {
	x.rules.mu.Lock()
	defer x.rules.mu.Unlock()
	x.request.Status = code
}
