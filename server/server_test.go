// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
)

// open opens a server on a free port.
func open(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	l, err := server.Listen("127.0.0.1:0")
	testkit.NoError(t, err)
	o.Listener = l
	s, err := server.New(o)
	testkit.NoError(t, err)
	testkit.NoError(t, s.Open(t.Context()))
	return s
}

// serve runs a server. stop asks it to stop, and cancel ends its requests; result is Serve's.
func serve(t *testing.T, s *server.Server) (stop, cancel func(), result func() error) {
	t.Helper()
	take, stop := context.WithCancel(t.Context())
	work, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(take, work) }()
	return stop, cancel, func() error { return <-done }
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // self-signed
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	testkit.NoError(t, err)
	return resp.StatusCode, string(text)
}

func address(s *server.Server) string {
	_, at, _ := strings.Cut(s.String(), " on ")
	return at
}

func TestServe_WithoutAManager(t *testing.T) {
	for scheme, o := range map[string]server.Options{"http": {Name: "page server", Plain: true}, "https": {Name: "page server"}} {
		t.Run(scheme, func(t *testing.T) {
			s := open(t, o)
			s.Handle("GET /page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
			stop, cancel, result := serve(t, s)
			defer cancel()
			if status, body := get(t, scheme+"://"+address(s)+"/page"); status != http.StatusOK || body != "here" {
				t.Errorf("%d %q", status, body)
			}
			stop()
			testkit.Equal(t, result(), nil)
			testkit.Equal(t, s.CheckCertificate(), nil)
			testkit.Equal(t, s.String(), "the page server on "+address(s))
		})
	}
}

func TestServe_RequestsUnderWayEndWithTheWork(t *testing.T) {
	s := open(t, server.Options{Plain: true})
	began := make(chan struct{})
	s.Handle("/slow", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		fmt.Fprint(w, "done")
	}))
	stop, cancel, result := serve(t, s)
	answered := make(chan string, 1)
	go func() {
		_, body := get(t, "http://"+address(s)+"/slow")
		answered <- body
	}()
	<-began
	stop()
	select {
	case got := <-answered:
		t.Errorf("the stop ended the request: %q", got)
	default:
	}
	cancel()
	testkit.Equal(t, <-answered, "done")
	testkit.Equal(t, result(), nil)
}

func TestServe_TheErrorOfTheListenerIsReturned(t *testing.T) {
	s := open(t, server.Options{Plain: true})
	testkit.NoError(t, s.Close())
	_, cancel, result := serve(t, s)
	defer cancel()
	testkit.NotEqual(t, result(), nil, "a server without a listener served")
}

func TestOpen_AnAddressThatIsTaken(t *testing.T) {
	first := open(t, server.Options{Plain: true})
	defer first.Close()
	second, err := server.New(server.Options{Plain: true, Address: address(first)})
	testkit.NoError(t, err)
	testkit.ErrorContains(t, second.Open(t.Context()), "is taken")
}

func TestAuthorize_NeedsAClient(t *testing.T) {
	s, err := server.New(server.Options{})
	testkit.NoError(t, err)
	s.Authorize(http.NotFoundHandler())
	testkit.ErrorContains(t, s.Validate(), "server.Options.Client")
}

func TestValidate_NamesTheField(t *testing.T) {
	for want, o := range map[string]server.Options{
		"both Address and Listener":       {Address: ":0", Listener: &net.TCPListener{}},
		"server.Options.Plain":            {Plain: true, CertDir: "tls"},
		"server.Options.CertDir":          {CertDir: "tls", CertFile: "a", KeyFile: "b"},
		"one of CertFile and KeyFile":     {CertFile: "a"},
		"of CertFile and KeyFile is set;": {KeyFile: "b"},
	} {
		testkit.ErrorContains(t, testkit.Err(server.New(o)), want)
	}
}

func TestHandle_NilIsAnError(t *testing.T) {
	s, err := server.New(server.Options{})
	testkit.NoError(t, err)
	s.Handle("/a", http.HandlerFunc(nil))
	if err := s.Validate(); err == nil || s.Open(t.Context()).Error() != err.Error() {
		t.Error("a nil handler is mounted")
	}
}
