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
// The certificate and the client CA are read again when a connection is made, at most once a
// second. So the files can be replaced, as Kubernetes does with a mounted Secret. Broken files are
// logged once, Server.Certificate reports them, and the previous certificate stays in use. A file
// system that hangs delays a handshake by at most 100 ms.
type Options struct {
	// Name is the server's name in logs and errors. Default: "server".
	Name string
	// Address is where to listen: host:port, :port for all interfaces, port 0 for a free port.
	// Default: :8443.
	Address string
	// Listener replaces Address, for tests or for a socket that is already open. Serve closes it.
	// Default: none.
	Listener net.Listener
	// Plain serves HTTP without TLS. Default: TLS 1.2 or later, with HTTP/2.
	Plain bool
	// CertDir is a folder with tls.crt and tls.key, such as a mounted Secret of type
	// kubernetes.io/tls. Default: CertFile and KeyFile.
	CertDir string
	// CertFile and KeyFile are PEM files: the certificate with its intermediates, and its key.
	// Default: a self-signed certificate (ECDSA P-256, one year), which clients cannot verify.
	CertFile, KeyFile string
	// ClientCAFile is a PEM file with the CAs of client certificates. If it is set, each client
	// must present a certificate. Default: clients need none.
	ClientCAFile string
	// Client is the API server that Authorize asks. Default: none, and Authorize fails. A manager
	// sets it.
	Client *client.Client
	// Audiences are those of the tokens that Authorize accepts; a token needs one of them. Default:
	// the API server's own.
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
