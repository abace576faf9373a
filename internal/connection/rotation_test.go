// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(path, data, 0o600))
}

// guarded is a server that accepts one token.
type guarded struct {
	*api
	token   atomic.Pointer[string]
	refused atomic.Int64
}

func guard(t *testing.T, token string) *guarded {
	g := &guarded{}
	g.token.Store(&token)
	g.api = serve(t, 100, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("Authorization") != "Bearer "+*g.token.Load():
			g.refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method != http.MethodGet && len(body) == 0:
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	return g
}

func (g *guarded) rotate(token string) { g.token.Store(&token) }

func TestARefusedTokenIsReadAgain(t *testing.T) {
	const n = 50
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, []byte("first\n"))
	g := guard(t, "first")
	cfg := g.config()
	cfg.BearerToken, cfg.BearerTokenFile = "first", path // as in a pod
	rt, _ := connect(t, cfg)
	put := func(int) (int, error) { return send(t.Context(), rt, http.MethodPut, g.URL+"/api") }
	all(t, n, put)

	// The server refuses the old token before the file has the new one.
	g.rotate("second")
	if status, err := put(0); err != nil || status != http.StatusUnauthorized {
		t.Fatalf("without a new token: status %d, %v", status, err)
	}
	write(t, path, []byte("second\n"))
	all(t, n, put)

	// The other order. Requests before the rotation use the token that they have.
	write(t, path, []byte("third"))
	all(t, 1, put)
	g.rotate("third")
	all(t, n, put)

	// client-go still has the first token, but no request is refused again.
	refused := g.refused.Load()
	all(t, n, put)
	testkit.Equal(t, g.refused.Load()-refused, 0, "requests were sent with the old token")
}

// The token of a caller, such as a tenant's, must never become the one of the operator.
func TestATokenOfTheCallerStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, []byte("operator"))
	g := guard(t, "operator")
	cfg := g.config()
	cfg.BearerTokenFile = path
	rt, _ := connect(t, cfg)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL+"/api", http.NoBody)
	testkit.NoError(t, err)
	req.Header.Set("Authorization", "Bearer tenant")
	resp, err := rt.RoundTrip(req)
	testkit.NoError(t, err)
	resp.Body.Close()
	testkit.Equal(t, resp.StatusCode, http.StatusUnauthorized, "the tenant's request got status")
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, a.key.Public(), a.key)
	testkit.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	testkit.NoError(t, err)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) serving(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	of := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, of, a.cert, key.Public(), a.key)
	testkit.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// rotating is a server whose certificate changes.
type rotating struct {
	*httptest.Server
	serving atomic.Pointer[tls.Certificate]
	watches chan struct{} // gets one for each
	ca      string        // file
	open    atomic.Int64  // connections of the client
}

func rotate(t *testing.T, first *authority) *rotating {
	t.Helper()
	r := &rotating{watches: make(chan struct{}, 1), ca: filepath.Join(t.TempDir(), "ca.crt")}
	r.serving.Store(first.serving(t))
	write(t, r.ca, first.pem)
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		if req.URL.RawQuery == "" {
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // of the standard library
		r.watches <- struct{}{}
		<-req.Context().Done()
	}))
	r.EnableHTTP2 = true
	r.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.serving.Load(), nil }}
	r.StartTLS()
	r.TLS.Certificates = nil
	t.Cleanup(r.Close)
	return r
}

func (r *rotating) config() *rest.Config {
	cfg := &rest.Config{Host: r.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: r.ca}}
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r.open.Add(1)
		return &counted{Conn: c, open: &r.open}, nil
	}
	return cfg
}

type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func TestARefusedCertificateIsVerifiedWithTheNewCA(t *testing.T) {
	first, second, third := newAuthority(t, "first"), newAuthority(t, "second"), newAuthority(t, "third")
	r := rotate(t, first)
	rt, _ := connect(t, r.config())
	put := func(int) (int, error) {
		for {
			status, err := send(t.Context(), rt, http.MethodPut, r.URL+"/api")
			if _, refused := errors.AsType[*tls.CertificateVerificationError](err); err == nil || refused {
				return status, err
			} // else the request was on a connection that the test has closed
		}
	}
	all(t, 1, put)

	// The server changes before the file.
	r.serving.Store(second.serving(t))
	r.CloseClientConnections()
	if _, err := put(0); err == nil {
		t.Fatal("a certificate of an unknown CA was accepted")
	}
	write(t, r.ca, second.pem)
	all(t, 50, put)

	// The other order: the file has both before the server changes.
	write(t, r.ca, bytes.Join([][]byte{second.pem, third.pem}, nil))
	r.serving.Store(third.serving(t))
	r.CloseClientConnections()
	all(t, 50, put)
}

// A watch keeps the connection of the old CA after the change.
func TestM1_DisconnectClosesTheConnectionsOfAnOldCA(t *testing.T) {
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	r := rotate(t, first)
	rt, c := connect(t, r.config())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error)
	go func() {
		_, err := send(ctx, rt, http.MethodGet, r.URL+watched)
		ended <- err
	}()
	<-r.watches
	r.serving.Store(second.serving(t))
	write(t, r.ca, second.pem)
	// The Lease has a connection of its own, so the client must dial.
	if status, err := send(ctx, rt, http.MethodPut, r.URL+lease); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v", status, err)
	}
	stop()
	<-ended
	c.Disconnect(t.Context())
	testkit.Equal(t, r.open.Load(), 0, "connections are open after Disconnect")
}
