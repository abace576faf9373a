// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// front accepts connections from one Up to the next Down.
type front struct {
	proxy    *Proxy
	server   *http.Server
	listener net.Listener
	cancel   context.CancelCauseFunc
	serving  sync.WaitGroup
	open     sync.WaitGroup // one per connection, counted by serving
	handlers sync.WaitGroup // one per request; none is added once closed

	mu     sync.Mutex // guards conns
	conns  map[net.Conn]struct{}
	closed bool // guarded by proxy.mu
}

type connKey struct{} // of the net.Conn of a request

func serve(ctx context.Context, listener net.Listener, cert *certificate, p *Proxy) *front {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &front{proxy: p, listener: listener, cancel: cancel, conns: map[net.Conn]struct{}{}}
	f.server = &http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, h *http.Request) { f.handle(ctx, w, h) }),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{cert.pair}, MinVersion: tls.VersionTLS12},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ConnState:   f.connState,
		ErrorLog:    log.New(io.Discard, "", 0), // broken connections are expected
	}
	f.serving.Go(func() { _ = f.server.ServeTLS(listener, "", "") }) // ends with close
	return f
}

// connState is called with at least the first and the last state of each connection.
func (f *front) connState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		f.open.Add(1)
		f.mu.Lock()
		f.conns[c] = struct{}{}
		f.mu.Unlock()
	case http.StateClosed, http.StateHijacked:
		f.mu.Lock()
		delete(f.conns, c)
		f.mu.Unlock()
		f.open.Done()
	case http.StateActive, http.StateIdle:
	}
}

func (f *front) close(cause error) {
	f.proxy.mu.Lock()
	f.closed = true
	f.proxy.mu.Unlock()
	_ = f.listener.Close()
	f.serving.Wait() // no new connections from here
	f.mu.Lock()
	for c := range f.conns {
		reset(c)
	}
	f.mu.Unlock()
	f.cancel(cause)
	_ = f.server.Close() // errors of broken connections are expected
	f.open.Wait()
	f.handlers.Wait()
}

// reset breaks a connection like a network failure, without an orderly close.
func reset(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = t.SetLinger(0) // makes Close send a reset
	}
	_ = c.Close()
}

type certificate struct {
	pair tls.Certificate
	pem  []byte
}

func newCertificate() (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "fault"},
		NotBefore:             now.Add(-time.Hour), // tolerates small clock corrections
		NotAfter:              now.Add(365 * 24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &certificate{
		pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}
