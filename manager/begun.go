// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bufio"
	"net"
	"net/http"
)

// begun is an answer that reports whether any of it was written.
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
