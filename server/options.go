// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/client"
)

// Options configures New. The zero value is a TLS server on port 8443 with a self-signed
// certificate.
//
// The server rereads the files of the certificate and the client CA when a client connects, at most
// once a second. If new files are broken, the previous certificate stays in use, the server logs
// the error once and Server.CheckCertificate returns it. A file system that hangs delays a
// handshake by at most 100 ms.
type Options struct {
	// Name is the server's name in logs and errors. Default: "server".
	Name string
	// Address is the address to listen on: host:port, :port for all interfaces, port 0 for a free
	// port. Default: :8443.
	Address string
	// Listener replaces Address, for tests or an open socket. Serve closes it. Default: none.
	Listener net.Listener
	// Plain serves HTTP/1.1 without TLS. Default: TLS 1.2 or later, with HTTP/2.
	Plain bool
	// CertDir is a folder with tls.crt and tls.key, such as a mounted Secret of type
	// kubernetes.io/tls. Default: none, CertFile and KeyFile apply.
	CertDir string
	// CertFile and KeyFile are PEM files: the certificate with its intermediates, and its key.
	// Default: a self-signed certificate (ECDSA P-256, one year), which clients cannot verify.
	CertFile, KeyFile string
	// GetCertificate returns the certificate of each new connection, as in tls.Config. It replaces
	// the files, and cannot be combined with ClientCAFile. Default: none.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAFile is a PEM file with the CAs of client certificates, which each client must then
	// present. Default: none.
	ClientCAFile string
	// MinTLSVersion is the lowest version of TLS, such as tls.VersionTLS13. Default: TLS 1.2.
	MinTLSVersion uint16
	// CipherSuites are the allowed cipher suites of TLS 1.2: see tls.CipherSuites. TLS 1.3 has
	// suites that cannot be chosen. Default: Go's.
	CipherSuites []uint16
	// DisableHTTP2 serves only HTTP/1.1. Default: false.
	DisableHTTP2 bool
	// Linger is how long a stopping server still takes requests, and closes each connection after
	// its answer. Otherwise it could close a connection while a request is under way, which a
	// client cannot always repeat. It ends early when no connection is open. Default: 0.
	Linger time.Duration
	// Client is for the reviews of Authorize. A manager sets it. Default: none; Authorize then
	// fails.
	Client *client.Client
	// Audiences are the audiences that Authorize accepts. A token needs one of them. Default: the
	// API server's own.
	Audiences []string
}

// Validate returns an error that names each wrong field, or nil.
func (o Options) Validate() error {
	pair := o.CertFile != "" || o.KeyFile != ""
	var wrong []error
	for _, m := range []struct {
		made bool
		text string
	}{
		{o.Address != "" && o.Listener != nil, ": both Address and Listener are set; set one"},
		{o.Linger < 0, fmt.Sprintf(".Linger: %s is negative; use 0 or more", o.Linger)},
		{o.Plain && (o.CertDir != "" || pair || o.ClientCAFile != ""), ".Plain: a server without TLS has no certificates; set Plain or the files"},
		{o.CertDir != "" && pair, ".CertDir: CertFile or KeyFile is set as well; set CertDir or the two files"},
		{o.GetCertificate != nil && (o.Plain || o.CertDir != "" || pair || o.ClientCAFile != ""),
			".GetCertificate: Plain or a file is set as well; set GetCertificate or these"},
		{(o.CertFile == "") != (o.KeyFile == ""), ": one of CertFile and KeyFile is set; set both or none"},
	} {
		if m.made {
			wrong = append(wrong, errors.New("server.Options"+m.text))
		}
	}
	return errors.Join(append(wrong, o.validateTLS())...)
}

func (o Options) validateTLS() error {
	switch {
	case o.MinTLSVersion == 0 && o.CipherSuites == nil:
		return nil
	case o.Plain:
		return errors.New("server.Options.Plain: a server without TLS has no MinTLSVersion and no CipherSuites; set Plain or these")
	case o.MinTLSVersion != 0 && o.MinTLSVersion != tls.VersionTLS12 && o.MinTLSVersion != tls.VersionTLS13:
		return fmt.Errorf("server.Options.MinTLSVersion: %s is not supported; use tls.VersionTLS12 or tls.VersionTLS13", tls.VersionName(o.MinTLSVersion))
	case o.CipherSuites == nil:
		return nil
	case o.MinTLSVersion == tls.VersionTLS13:
		return errors.New("server.Options.CipherSuites: the suites of TLS 1.3 cannot be chosen; remove CipherSuites, or set MinTLSVersion to tls.VersionTLS12")
	case len(o.CipherSuites) == 0:
		return errors.New("server.Options.CipherSuites: the list is empty; set it to nil for the default")
	}
	var wrong []error
	for _, suite := range o.CipherSuites {
		wrong = append(wrong, validateSuite(suite))
	}
	required := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	if !o.DisableHTTP2 && !slices.ContainsFunc(o.CipherSuites, func(suite uint16) bool { return slices.Contains(required, suite) }) {
		wrong = append(wrong, errors.New("server.Options.CipherSuites: HTTP/2 requires TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; add the one of your key, or set DisableHTTP2"))
	}
	return errors.Join(wrong...)
}

func validateSuite(id uint16) error {
	is := func(s *tls.CipherSuite) bool { return s.ID == id }
	if slices.ContainsFunc(tls.InsecureCipherSuites(), is) {
		return fmt.Errorf("server.Options.CipherSuites: %s is insecure; remove it", tls.CipherSuiteName(id))
	}
	i := slices.IndexFunc(tls.CipherSuites(), is)
	switch {
	case i < 0:
		return fmt.Errorf("server.Options.CipherSuites: %s is unknown; tls.CipherSuites lists the known ones", tls.CipherSuiteName(id))
	case !slices.Contains(tls.CipherSuites()[i].SupportedVersions, tls.VersionTLS12):
		return fmt.Errorf("server.Options.CipherSuites: %s is for TLS 1.3 only, whose suites cannot be chosen; remove it", tls.CipherSuiteName(id))
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Name, o.Address = cmp.Or(o.Name, "server"), cmp.Or(o.Address, ":8443")
	return o
}
