// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"net/http"
	"time"
)

// cut cuts a running request from outside. It reports whether it was running and not cut before.
func (x *exchange) cut() bool {
	if !x.sever() {
		return false
	}
	x.note("cut")
	return true
}

// abort breaks the connection from within the handler.
func (x *exchange) abort() {
	x.sever()
	panic(http.ErrAbortHandler)
}

// sever breaks the connection (HTTP/1.1) or the stream (HTTP/2), whatever the handler is doing. The
// handler ends soon after.
func (x *exchange) sever() bool {
	delivers := x.delivers()
	x.proxy.mu.Lock()
	done := x.ended || x.severed
	x.severed = true
	x.proxy.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if done || x.writer == nil {
		return false
	}
	if x.request.Proto != "HTTP/2.0" && x.conn != nil {
		reset(x.conn)
	}
	// A past deadline resets an HTTP/2 stream, even if the client does not read.
	_ = http.NewResponseController(x.writer).SetWriteDeadline(time.Unix(1, 0))
	if x.cancel != nil && !delivers {
		x.cancel(errCut)
	}
	return true
}

// cutInTime cuts the request when the first Rule.CutAfter has elapsed, unless ctx ends earlier.
func (x *exchange) cutInTime(ctx context.Context) {
	err := x.proxy.wait(ctx, &x.proxy.rules, nil, func(now time.Time) (bool, time.Time) {
		var first time.Time
		for _, f := range x.faults {
			if f.rule.CutAfter == 0 || f.removed {
				continue
			}
			if at := f.since.Add(f.rule.CutAfter); first.IsZero() || at.Before(first) {
				first = at
			}
		}
		return !first.IsZero() && !now.Before(first), first
	})
	if err == nil {
		x.cut()
	}
}
