// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"runtime/pprof"
	"strings"
)

// ServerOptions configures the TLS server (1.2 and later, HTTP/2) for what [Manager.Handle] mounts: metrics, webhooks, a dashboard.
//
// The certificate and the client CA are read again when a connection is made, at most once a second, so that files may be
// replaced, as Kubernetes does with a mounted Secret. If the files are of no use, or are no regular files, the log has that once,
// the check "certificate" of /readyz remarks it, and the old ones stay in use. A file system that hangs delays no handshake by
// more than 100 ms.
type ServerOptions struct {
	// Address is where to listen: host:port, :port for all interfaces, port 0 for a free one. Default: :8443.
	Address string
	// Listener is used in the place of Address: for tests, or a socket that somebody else has opened. Run closes it when it has
	// served. Default: none.
	Listener net.Listener
	// CertDir is a folder with tls.crt and tls.key, such as a mounted Secret of type kubernetes.io/tls. Default: CertFile and KeyFile.
	CertDir string
	// CertFile and KeyFile are PEM files: the certificate with its intermediates, and its key. Default: if CertDir is not set
	// either, a self-signed certificate (ECDSA P-256, for a year) is made, which no client can verify.
	CertFile, KeyFile string
	// ClientCAFile is a PEM file with the CAs of client certificates. If it is set, every client must show one. Default: none need.
	ClientCAFile string
	// Audiences are those that a token must be for, one of them, to pass [Manager.Authorize]. Default: the API server's own.
	Audiences []string
}

func (o *ServerOptions) validate() error {
	var wrong []error
	if o.Address != "" && o.Listener != nil {
		wrong = append(wrong, errors.New("manager.Options.Server: both Address and Listener are set; set one"))
	}
	if o.CertDir != "" && (o.CertFile != "" || o.KeyFile != "") {
		wrong = append(wrong, errors.New("manager.Options.Server: CertDir is set, and CertFile or KeyFile, too; set one or the others"))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		wrong = append(wrong, errors.New("manager.Options.Server: of CertFile and KeyFile one is set; set both or none"))
	}
	return errors.Join(wrong...)
}

// web is the TLS server before it runs.
type web struct {
	mux         http.ServeMux
	certificate *certificate // once it is open
}

// openServer opens the TLS server, if it is asked for.
func (m *Manager) openServer() (*server, error) {
	o := m.o.Server
	if o == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	c := &certificate{certFile: o.CertFile, keyFile: o.KeyFile, caFile: o.ClientCAFile, log: m.logger()}
	if o.CertDir != "" {
		c.certFile, c.keyFile = filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key")
	}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("manager.Options.Server: %w", err)
	}
	address := o.Address
	if address == "" {
		address = ":8443"
	}
	s, err := m.newServer("server", "Server", address, o.Listener)
	if err != nil {
		return nil, err
	}
	m.web.certificate = c
	s.tls, s.handler, s.join = c.config(), &m.web.mux, c.reads.Wait
	return s, nil
}

// Handle mounts a handler on the server of Options.Server, before Run or while it runs, under a pattern of net/http.ServeMux, such
// as "/metrics" or "POST /validate". A pattern that is wrong or conflicts with another ends Run, or keeps it from starting.
//
// The context of a request ends when its client goes away, and on a stop when the grace time is over: servers are the last to stop,
// and answer until then. A handler that does not return is named by Run, with its stack. One that panics is answered for with status
// 500; the log has its stack.
func (m *Manager) Handle(pattern string, h http.Handler) {
	switch {
	case isNil(h):
		m.complain(fmt.Errorf("Handle: the handler of %q is nil", pattern))
	case m.o.Server == nil:
		m.complain(fmt.Errorf("Handle: nothing serves %q; set Options.Server", pattern))
	default:
		m.complain(m.mount(pattern, h))
	}
}

// mount returns the panic of http.ServeMux, without where in this file the other pattern came from.
func (m *Manager) mount(pattern string, h http.Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			where := regexp.MustCompile(` \(registered at [^)]*\)`)
			text := where.ReplaceAllString(fmt.Sprint(p), "")
			err = fmt.Errorf("Handle: the pattern %q is of no use: %s", pattern, strings.ReplaceAll(text, "\n", " "))
		}
	}()
	m.web.mux.Handle(pattern, m.guard(pattern, h))
	return nil
}

// isNil also finds what is nil in an interface that is not.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan, reflect.Interface:
		return r.IsNil()
	default:
		return false
	}
}

// guard has a panic of a handler logged and answered with 500, and marks its goroutine with the pattern.
func (m *Manager) guard(pattern string, h http.Handler) http.Handler {
	labels := pprof.Labels("handler", pattern)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pprof.Do(r.Context(), labels, func(context.Context) { m.answer(pattern, h, w, r) })
	})
}

func (m *Manager) answer(pattern string, h http.Handler, w http.ResponseWriter, r *http.Request) {
	answer := &begun{ResponseWriter: w}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it, too
			panic(p)
		}
		m.logger().Error("a handler has panicked", "handler", pattern, "panic", p, "stack", string(debug.Stack()))
		if answer.begun {
			panic(http.ErrAbortHandler) // so that the client does not take what it has got for all
		}
		http.Error(w, "the handler of "+pattern+" has failed; the log says how", http.StatusInternalServerError)
	}()
	h.ServeHTTP(answer, r)
}
