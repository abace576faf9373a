// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"errors"
	"net"

	"github.com/setpoint-dev/setpoint/client"
)

// Options configures New. The zero value is a TLS server on port 8443 with a self-signed
// certificate.
//
// The server rereads the files of the certificate and the client CA when a client connects, at most
// once a second. So the files can be replaced, as Kubernetes does with a mounted Secret. If the new
// files are broken, the previous certificate stays in use, the server logs the error once and
// Server.Certificate returns it. A file system that hangs delays a handshake by at most 100 ms.
type Options struct {
	// Name is the server's name in logs and errors. Default: "server".
	Name string
	// Address is the address to listen on: host:port, :port for all interfaces, port 0 for a free
	// port. Default: :8443.
	Address string
	// Listener replaces Address, for tests or an open socket. Serve closes it. Default: none.
	Listener net.Listener
	// Plain serves HTTP without TLS. Default: TLS 1.2 or later, with HTTP/2.
	Plain bool
	// CertDir is a folder with tls.crt and tls.key, such as a mounted Secret of type
	// kubernetes.io/tls. Default: none, CertFile and KeyFile apply.
	CertDir string
	// CertFile and KeyFile are PEM files: the certificate with its intermediates, and its key.
	// Default: a self-signed certificate (ECDSA P-256, one year), which clients cannot verify.
	CertFile, KeyFile string
	// ClientCAFile is a PEM file with the CAs of client certificates. If set, each client must
	// present a certificate. Default: none, clients need no certificate.
	ClientCAFile string
	// Client is the client for the reviews of Authorize. A manager sets it. Default: none, and
	// Authorize returns an error.
	Client *client.Client
	// Audiences are the audiences that Authorize accepts. A token needs one of them. Default: the
	// API server's own audiences.
	Audiences []string
}

// Validate names each field that is wrong.
func (o Options) Validate() error {
	var wrong []error
	if o.Address != "" && o.Listener != nil {
		wrong = append(wrong, errors.New("server.Options: both Address and Listener are set; set one"))
	}
	if o.Plain && (o.CertDir != "" || o.CertFile != "" || o.KeyFile != "" || o.ClientCAFile != "") {
		wrong = append(wrong, errors.New("server.Options.Plain: a server without TLS has no certificates; set Plain or the files"))
	}
	if o.CertDir != "" && (o.CertFile != "" || o.KeyFile != "") {
		wrong = append(wrong, errors.New("server.Options.CertDir: CertFile or KeyFile is set as well; set CertDir or the two files"))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		wrong = append(wrong, errors.New("server.Options: one of CertFile and KeyFile is set; set both or none"))
	}
	return errors.Join(wrong...)
}

func (o Options) withDefaults() Options {
	o.Name, o.Address = cmp.Or(o.Name, "server"), cmp.Or(o.Address, ":8443")
	return o
}
