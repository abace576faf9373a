// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// lookAgain is how long what was read last is taken for current.
const lookAgain = time.Second

// certificate is what a TLS server shows, and the CAs of what it asks to see.
type certificate struct {
	certFile, keyFile string // none: a self-signed one
	caFile            string // none: clients need no certificate
	log               *slog.Logger

	mu      sync.Mutex // guards what follows
	current *tls.Config
	looked  time.Time
	found   [3][]byte // what the files had when they were last looked at
	err     error     // why that is of no use
}

// config returns the server's. Each handshake gets the current one.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.look(), nil },
	}
}

// load reads or makes the first certificate.
func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookLocked()
	return c.err
}

// look returns what is to be used, after it has looked for something newer.
func (c *certificate) look() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= lookAgain {
		c.lookLocked()
	}
	return c.current
}

// check says when the certificate has expired, or remarks that a newer one is of no use.
func (c *certificate) check() error {
	until := c.look().Certificates[0].Leaf.NotAfter
	c.mu.Lock()
	defer c.mu.Unlock()
	expires := until.UTC().Format(time.RFC3339)
	switch expired := time.Now().After(until); {
	case expired && c.err != nil:
		return fmt.Errorf("the certificate in use expired at %s, and a newer one cannot be used: %w", expires, c.err)
	case expired:
		return fmt.Errorf("the certificate expired at %s; renew it", expires)
	case c.err != nil:
		return remark(fmt.Sprintf("that which expires at %s stays in use: %v", expires, c.err))
	default:
		return nil
	}
}

func (c *certificate) lookLocked() {
	c.looked = time.Now()
	if c.certFile == "" && c.current != nil && c.looked.Before(halfOf(c.current.Certificates[0].Leaf)) {
		return
	}
	found, err := c.read()
	known := same(found, c.found)
	if err == nil && c.current != nil && c.err == nil && known {
		return
	}
	var fresh *tls.Config
	if err == nil {
		fresh, err = c.parse(found)
	}
	before := c.err
	c.found, c.err = found, err
	switch {
	case err == nil && c.current == nil:
		c.current = fresh
	case err == nil:
		c.current = fresh
		c.log.Info("the server has a new certificate", "expires", fresh.Certificates[0].Leaf.NotAfter)
	case c.current != nil && (!known || before == nil || before.Error() != err.Error()):
		c.log.Error("the server keeps its certificate: what has replaced it cannot be used", "err", err)
	}
}

// halfOf is when half of a certificate's time is over.
func halfOf(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}

func same(a, b [3][]byte) bool {
	return bytes.Equal(a[0], b[0]) && bytes.Equal(a[1], b[1]) && bytes.Equal(a[2], b[2])
}

// read returns the certificate, the key and the CAs, as PEM.
func (c *certificate) read() (found [3][]byte, err error) {
	for i, file := range []string{c.certFile, c.keyFile, c.caFile} {
		if file == "" {
			continue
		}
		if found[i], err = os.ReadFile(file); err != nil {
			return found, fmt.Errorf("cannot read the TLS files: %w", err)
		}
	}
	if c.certFile != "" {
		return found, nil
	}
	c.log.Warn("the server's certificate is self-signed, which no client can verify; set Options.Server.CertDir")
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	found[0], found[1], err = cert.GenerateSelfSignedCertKey(host, nil, []string{"localhost"})
	if err != nil {
		return found, fmt.Errorf("cannot make a self-signed certificate: %w", err)
	}
	return found, nil
}

// parse makes the configuration of what was read.
func (c *certificate) parse(found [3][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(found[0], found[1])
	if err != nil {
		return nil, fmt.Errorf("the certificate in %s and the key in %s cannot be used: %w", c.certFile, c.keyFile, err)
	}
	if time.Now().After(pair.Leaf.NotAfter) && c.current != nil {
		return nil, fmt.Errorf("the certificate in %s expired at %s", c.certFile, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if time.Now().Before(pair.Leaf.NotBefore) && c.current != nil {
		return nil, fmt.Errorf("the certificate in %s is not valid before %s", c.certFile, pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	config := c.config()
	config.GetConfigForClient = nil
	config.Certificates = []tls.Certificate{pair}
	if c.caFile != "" {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(found[2]) {
			return nil, errors.New("there is no certificate in " + c.caFile)
		}
	}
	return config, nil
}
