// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"compress/gzip"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// Over real connections, in both versions of HTTP, with responses that net/http decompresses, and
// broken ones.
func TestLedgerOverHTTP(t *testing.T) {
	const closed = "there was no answer: "
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Query().Get("do") {
				case "zip":
					w.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					io.WriteString(z, plain)
					z.Close()
				case "cut":
					io.WriteString(w, plain[:40])
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				case "none":
					panic(http.ErrAbortHandler)
				default:
					io.WriteString(w, plain)
				}
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			if !http2 {
				cfg.NextProtos = []string{"http/1.1"}
			}
			c, err := client.New(cfg, client.Options{})
			testkit.NoError(t, err)
			defer c.Close()
			for do, want := range map[string]string{
				"":     "update pods ns/p stored p u@7",
				"zip":  "update pods ns/p stored p u@7",
				"cut":  "update pods ns/p accepted p @: the answer was not read: it was cut off: ",
				"none": "update pods ns/p uncertain p @: " + closed,
			} {
				l := journal.New(journal.Origin{})
				req, err := http.NewRequestWithContext(journal.With(t.Context(), l), http.MethodPut, server.URL+pods+"/p?do="+do, strings.NewReader("{}"))
				testkit.NoError(t, err)
				resp, err := c.HTTPClient().Do(req)
				if err == nil {
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.Proto != proto || err == nil && string(body) != plain {
						t.Errorf("%s %q: %s, %q", proto, do, resp.Proto, body)
					}
				}
				if got := says(l); len(got) != 1 || !strings.HasPrefix(got[0], want) {
					t.Errorf("%s %q: %v, want %s", proto, do, got, want)
				}
			}
		})
	}
}

// Configurations with different user agents share one connection pool.
func TestConfigsShareConnections(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c, err := client.New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, client.Options{})
	testkit.NoError(t, err)
	defer c.Close()
	bottom := func(userAgent string) http.RoundTripper {
		cfg := c.Config()
		cfg.UserAgent = userAgent
		h, err := rest.HTTPClientFor(cfg)
		testkit.NoError(t, err)
		rt := h.Transport
		for {
			w, ok := rt.(interface{ WrappedRoundTripper() http.RoundTripper })
			if !ok {
				return rt
			}
			rt = w.WrappedRoundTripper()
		}
	}
	testkit.Equal(t, bottom("a"), bottom("b"), "two configurations have a transport each")
}
