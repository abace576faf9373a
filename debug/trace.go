// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/why"
)

const (
	traceLimit  = 10 * time.Minute        // then a trace ends by itself
	traceBegins = 1500 * time.Millisecond // an error of Manager.Trace comes before
)

// tracer serves /debug/trace: a line of JSON for each Reconcile.
type tracer struct {
	manager *manager.Manager
	values  bool
	stops   stops
}

func (t *tracer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, ok := query(w, r, "kind", "namespace", "name", "seconds")
	if !ok {
		return
	}
	o, ok := objectOf(w, q)
	if !ok {
		return
	}
	limit := traceLimit
	if text := q.Get("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if most := int(traceLimit.Seconds()); err != nil || n < 1 || n > most {
			http.Error(w, fmt.Sprintf("the parameter seconds is %q; use 1 to %d", text, most), http.StatusBadRequest)
			return
		}
		limit = time.Duration(n) * time.Second
	}
	if !t.values {
		http.Error(w, "a trace has values of objects, which are off; set debug.Options.Values", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	secure(w.Header(), "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not delay lines
	if r.Method == http.MethodHead {
		return
	}
	t.send(ctx, t.stops.of(r), o, w)
}

// send sends a line for each Reconcile until ctx ends, the server stops or the client has gone.
func (t *tracer) send(ctx context.Context, stopped <-chan struct{}, o why.Object, w http.ResponseWriter) {
	ctx, cancel := context.WithCancel(ctx)
	reconciles, ended := make(chan controller.Traced), make(chan error)
	go func() {
		defer close(ended)
		ended <- t.manager.Trace(ctx, o, func(r controller.Traced) {
			select {
			case reconciles <- r:
			case <-ctx.Done():
			}
		})
	}()
	defer func() {
		cancel()
		for range ended { // join
		}
	}()
	out, begun := json.NewEncoder(w), time.NewTimer(traceBegins)
	defer begun.Stop()
	flush := http.NewResponseController(w).Flush
	for sent := false; ; sent = true {
		var failed error
		select {
		case r := <-reconciles:
			failed = out.Encode(r)
		case <-begun.C: // an empty line also finds out that the client has gone
			_, failed = w.Write([]byte("\n"))
			begun.Reset(aliveEvery)
		case err := <-ended:
			fail(w, out, err, sent)
			return
		case <-stopped:
			return
		}
		if failed != nil || flush() != nil {
			return
		}
	}
}

// fail answers with the error of a trace, if any, in a line of its own if there were others.
func fail(w http.ResponseWriter, out *json.Encoder, err error, sent bool) {
	switch {
	case err == nil:
	case sent:
		_ = out.Encode(struct { // the client may have gone
			Error string `json:"error"`
		}{err.Error()})
	default:
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
