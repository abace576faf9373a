// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/manager"
)

const (
	lookAgain     = time.Second            // minimum time between two reads of the files
	readLimit     = 100 * time.Millisecond // a handshake waits no longer
	maxFile       = 1 << 20                // bytes
	selfSignedFor = 365 * 24 * time.Hour   // replaced at half of it
)

type certificate struct {
	certFile, keyFile string // empty: a self-signed certificate
	caFile            string // empty: clients need no certificate
	base              *tls.Config
	log               *slog.Logger
	reads             *sync.WaitGroup

	read    caller
	current atomic.Pointer[pair] // replaced by reads, which do not overlap
}

type pair struct {
	config *tls.Config // nil before the first good read
	files  [3]string   // certificate, key and CAs
	err    error       // why files cannot be used; config is then an earlier one
}

func (p *pair) leaf() *x509.Certificate { return p.config.Certificates[0].Leaf }

func newCertificate(o *Options, log *slog.Logger, reads *sync.WaitGroup) *certificate {
	c := &certificate{certFile: o.CertFile, keyFile: o.KeyFile, caFile: o.ClientCAFile, base: baseOf(o), log: log, reads: reads}
	if o.CertDir != "" {
		c.certFile, c.keyFile = filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key")
	}
	c.current.Store(&pair{})
	return c
}

func (c *certificate) config() *tls.Config {
	config := c.base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, _ := c.look()
		return now.config, nil
	}
	return config
}

func baseOf(o *Options) *tls.Config {
	base := &tls.Config{MinVersion: max(o.MinTLSVersion, tls.VersionTLS12), CipherSuites: o.CipherSuites, NextProtos: []string{"h2", "http/1.1"}}
	if o.DisableHTTP2 {
		base.NextProtos = []string{"http/1.1"}
	}
	return base
}

// look waits for a read at most readLimit.
func (c *certificate) look() (*pair, *call) {
	read := c.read.begin(c.reads, lookAgain, c.refresh)
	read.returned(readLimit)
	return c.current.Load(), read
}

func (c *certificate) check() error {
	now, read := c.look()
	until := now.leaf().NotAfter
	expires := until.UTC().Format(time.RFC3339)
	switch expired := time.Now().After(until); {
	case expired && now.err != nil:
		return fmt.Errorf("the certificate in use expired at %s, and a newer one cannot be used: %w", expires, now.err)
	case expired:
		return fmt.Errorf("the certificate expired at %s; renew it", expires)
	case !run.Closed(read.done):
		return manager.Remark(fmt.Sprintf("the certificate that expires at %s stays in use: reading the TLS files has taken %s so far; look at the file system they are on", expires, time.Since(read.began).Round(time.Millisecond)))
	case now.err != nil:
		return manager.Remark(fmt.Sprintf("the certificate that expires at %s stays in use: %v", expires, now.err))
	default:
		return nil
	}
}

func (c *certificate) refresh() error {
	was := c.current.Load()
	if c.certFile == "" && was.config != nil && time.Now().Before(halfOf(was.leaf())) {
		return nil
	}
	files, err := c.readFiles()
	if err == nil && was.err == nil && files == was.files {
		return nil
	}
	now := &pair{files: files, err: err}
	if err == nil {
		now.config, now.err = c.parse(files, was.config != nil)
	}
	if now.err != nil {
		now.config = was.config
	}
	c.current.Store(now)
	switch {
	case was.config == nil:
	case now.err == nil:
		c.log.Info("the server has a new certificate", "expires", now.leaf().NotAfter)
	case was.err == nil || was.err.Error() != now.err.Error():
		c.log.Error("the server keeps its certificate: the new files cannot be used", "err", now.err)
	}
	return now.err
}

func halfOf(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}

func (c *certificate) readFiles() (files [3]string, err error) {
	for i, name := range []string{c.certFile, c.keyFile, c.caFile} {
		if name == "" {
			continue
		}
		if files[i], err = readFile(name); err != nil {
			return files, fmt.Errorf("cannot read the TLS files: %w", err)
		}
	}
	if c.certFile != "" {
		return files, nil
	}
	c.log.Warn("the server's certificate is self-signed, which no client can verify; set server.Options.CertDir")
	if files[0], files[1], err = selfSigned(); err != nil {
		return files, fmt.Errorf("cannot make a self-signed certificate: %w", err)
	}
	return files, nil
}

// readFile refuses a named pipe, for example, because opening it would block.
func readFile(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file (%s); put a PEM file there", name, info.Mode())
	case info.Size() > maxFile:
		return "", fmt.Errorf("%s has %d bytes, at most %d are read; put a PEM file there", name, info.Size(), maxFile)
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// parse requires a certificate that replaces another one to be valid now.
func (c *certificate) parse(files [3]string, replaces bool) (*tls.Config, error) {
	shown, err := tls.X509KeyPair([]byte(files[0]), []byte(files[1]))
	if err != nil {
		return nil, fmt.Errorf("the certificate in %s and the key in %s cannot be used: %w", c.certFile, c.keyFile, err)
	}
	from, until := shown.Leaf.NotBefore, shown.Leaf.NotAfter
	if replaces && time.Now().After(until) {
		return nil, fmt.Errorf("the certificate in %s expired at %s", c.certFile, until.UTC().Format(time.RFC3339))
	}
	if replaces && time.Now().Before(from) {
		return nil, fmt.Errorf("the certificate in %s is not valid before %s", c.certFile, from.UTC().Format(time.RFC3339))
	}
	config := c.base.Clone()
	config.Certificates = []tls.Certificate{shown}
	if c.caFile != "" {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM([]byte(files[2])) {
			return nil, errors.New("there is no certificate in " + c.caFile)
		}
	}
	return config, nil
}

// selfSigned makes an ECDSA P-256 key, because an RSA key may take seconds.
func selfSigned() (certificate, key string, err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	template := &x509.Certificate{ // SerialNumber is random
		Subject:   pkix.Name{CommonName: host},
		DNSNames:  []string{host, "localhost"},
		NotBefore: now.Add(-time.Hour), // for clients with slow clocks
		NotAfter:  now.Add(selfSignedFor),
		KeyUsage:  x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	return inPEM("CERTIFICATE", der), inPEM("PRIVATE KEY", pkcs8), err
}

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
