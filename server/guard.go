// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"runtime/pprof"
)

// guard logs a panic of the handler and answers with 500. It labels the goroutine with the pattern.
func guard(pattern string, h http.Handler) http.Handler {
	labels := pprof.Labels("handler", pattern)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pprof.Do(r.Context(), labels, func(context.Context) { answered(pattern, h, w, r) })
	})
}

func answered(pattern string, h http.Handler, w http.ResponseWriter, r *http.Request) {
	answer := &begun{ResponseWriter: w}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it, too
			panic(p)
		}
		loggerOf(r.Context()).Error("a handler has panicked", "handler", pattern, "panic", p, "stack", string(debug.Stack()))
		if answer.begun {
			panic(http.ErrAbortHandler) // so that the client does not take a part for the whole answer
		}
		http.Error(w, "the handler of "+pattern+" has failed; the log says how", http.StatusInternalServerError)
	}()
	h.ServeHTTP(answer, r)
}

// begun is a response that reports whether any of it was written.
type begun struct {
	http.ResponseWriter
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begun) WriteHeader(status int) {
	b.begun = b.begun || status >= http.StatusOK
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *begun) Write(p []byte) (int, error) {
	b.begun = true
	return b.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (b *begun) Flush() {
	b.begun = true
	_ = http.NewResponseController(b.ResponseWriter).Flush() // http.Flusher has no error
}

// Hijack implements http.Hijacker.
func (b *begun) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	b.begun = true
	return http.NewResponseController(b.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }
