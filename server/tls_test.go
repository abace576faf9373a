// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
)

// TestTLS_OptionsBindClients shows what clients with these settings get.
func TestTLS_OptionsBindClients(t *testing.T) {
	const strong, other = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	only12 := &tls.Config{MaxVersion: tls.VersionTLS12}
	for name, test := range map[string]struct {
		options server.Options
		client  *tls.Config
		want    string // the answer, or a part of the client's error
	}{
		"default":              {want: "TLS 1.3 HTTP/2.0"},
		"default, old client":  {client: only12, want: "TLS 1.2 HTTP/2.0"},
		"default, older":       {client: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, want: "protocol version not supported"}, //nolint:gosec // must be refused
		"1.3":                  {options: server.Options{MinTLSVersion: tls.VersionTLS13}, want: "TLS 1.3 HTTP/2.0"},
		"1.3, old client":      {options: server.Options{MinTLSVersion: tls.VersionTLS13}, client: only12, want: "protocol version not supported"},
		"HTTP/1.1":             {options: server.Options{DisableHTTP2: true}, want: "TLS 1.3 HTTP/1.1"},
		"suite":                {options: server.Options{CipherSuites: []uint16{strong}}, client: only12, want: "TLS 1.2 HTTP/2.0"},
		"suite, other client":  {options: server.Options{CipherSuites: []uint16{strong}}, client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{other}}, want: "handshake failure"}, //nolint:gosec // for HTTP/2, too
		"suite without HTTP/2": {options: server.Options{CipherSuites: []uint16{other}, DisableHTTP2: true}, client: only12, want: "TLS 1.2 HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, test.options)
			s.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(tls.VersionName(r.TLS.Version) + " " + r.Proto))
			}))
			stop, cancel, result := serve(t, s)
			defer cancel()
			settings := &tls.Config{}
			if test.client != nil {
				settings = test.client.Clone()
			}
			settings.InsecureSkipVerify = true // self-signed
			transport := &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}
			testkit.Contains(t, text(&http.Client{Transport: transport}, "https://"+address(s)), test.want)
			transport.CloseIdleConnections()
			stop()
			testkit.Equal(t, result(), nil)
		})
	}
}

// TestTLS_OptionsAreValidated: each mistake is one sentence with a remedy.
func TestTLS_OptionsAreValidated(t *testing.T) {
	for want, o := range map[string]server.Options{
		"server.Options.Plain: a server without TLS has no MinTLSVersion":                                                                    {Plain: true, MinTLSVersion: tls.VersionTLS13},
		"server.Options.MinTLSVersion: TLS 1.1 is not supported; use tls.VersionTLS12":                                                       {MinTLSVersion: tls.VersionTLS11},
		"server.Options.MinTLSVersion: 0x0001 is not supported":                                                                              {MinTLSVersion: 1},
		"server.Options.CipherSuites: TLS_RSA_WITH_RC4_128_SHA is insecure; remove it":                                                       {CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}, DisableHTTP2: true},
		"server.Options.CipherSuites: TLS_AES_128_GCM_SHA256 is for TLS 1.3 only, whose suites cannot be chosen; remove it":                  {CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256}, DisableHTTP2: true},
		"server.Options.CipherSuites: 0x0001 is unknown; tls.CipherSuites lists":                                                             {CipherSuites: []uint16{1}, DisableHTTP2: true},
		"server.Options.CipherSuites: the list is empty":                                                                                     {CipherSuites: []uint16{}},
		"server.Options.CipherSuites: the suites of TLS 1.3 cannot be chosen":                                                                {MinTLSVersion: tls.VersionTLS13, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}},
		"server.Options.CipherSuites: HTTP/2 requires TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; add": {CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}},
	} {
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func text(c *http.Client, url string) string {
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	buf := make([]byte, 100)
	n, _ := resp.Body.Read(buf)
	return string(buf[:n])
}
