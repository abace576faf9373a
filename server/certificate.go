// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// lookAgain is how long the files that were read last count as current.
	lookAgain = time.Second
	// readLimit is how long handshakes wait for the files. Then they use the current certificate.
	readLimit = 100 * time.Millisecond
	// maxFile is how large a TLS file may be, in bytes.
	maxFile = 1 << 20
)

// certificate is what a TLS server shows, and the CAs of what it asks to see.
type certificate struct {
	certFile, keyFile string // none: a self-signed one
	caFile            string // none: clients need no certificate
	log               *slog.Logger

	reads sync.WaitGroup // of files, under way

	mu      sync.Mutex // guards what follows
	current *tls.Config
	looked  time.Time
	reading chan struct{} // closed when the files have been read; nil: no read is under way
	found   [3][]byte     // the content of the files when they were last read
	err     error         // why that is of no use
}

func newCertificate(o *Options, log *slog.Logger) *certificate {
	c := &certificate{certFile: o.CertFile, keyFile: o.KeyFile, caFile: o.ClientCAFile, log: log}
	if o.CertDir != "" {
		c.certFile, c.keyFile = filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key")
	}
	return c
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
	c.refresh()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// look returns the certificate to use. If it is time, it reads the files first. A read of more than
// readLimit, on a file system that hangs for instance, delays no handshake any further.
func (c *certificate) look() *tls.Config {
	c.mu.Lock()
	if c.reading == nil && time.Since(c.looked) >= lookAgain {
		read := make(chan struct{})
		c.looked, c.reading = time.Now(), read
		c.reads.Go(func() {
			defer c.read(read)
			c.refresh()
		})
	}
	reading, left := c.reading, readLimit-time.Since(c.looked)
	c.mu.Unlock()
	if reading != nil && left > 0 {
		late := time.NewTimer(left)
		defer late.Stop()
		select {
		case <-reading:
		case <-late.C:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// read notes that the files have been read.
func (c *certificate) read(done chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = nil
	close(done)
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
	case c.reading != nil && time.Since(c.looked) > readLimit:
		return Remark(fmt.Sprintf("that which expires at %s stays in use: reading the TLS files has taken %s so far; look at the file system they are on", expires, time.Since(c.looked).Round(time.Millisecond)))
	case c.err != nil:
		return Remark(fmt.Sprintf("that which expires at %s stays in use: %v", expires, c.err))
	default:
		return nil
	}
}

// refresh reads the files, without the lock, and uses their content. Calls do not overlap.
func (c *certificate) refresh() {
	if c.certFile == "" && c.fresh() {
		return
	}
	found, err := c.readFiles()
	switch renewed, broken := c.use(found, err); {
	case renewed != nil:
		c.log.Info("the server has a new certificate", "expires", renewed.NotAfter)
	case broken != nil:
		c.log.Error("the server keeps its certificate: what has replaced it cannot be used", "err", broken)
	}
}

// use takes what was read. It returns a certificate that replaces another one, or why it does not,
// once for each cause.
func (c *certificate) use(found [3][]byte, err error) (renewed *x509.Certificate, broken error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = time.Now()
	known := same(found, c.found)
	if err == nil && c.current != nil && c.err == nil && known {
		return nil, nil
	}
	var fresh *tls.Config
	if err == nil {
		fresh, err = c.parseLocked(found)
	}
	before := c.err
	c.found, c.err = found, err
	switch {
	case err == nil && c.current == nil:
		c.current = fresh
	case err == nil:
		c.current = fresh
		return fresh.Certificates[0].Leaf, nil
	case c.current != nil && (!known || before == nil || before.Error() != err.Error()):
		return nil, err
	}
	return nil, nil
}

// fresh reports whether there is a certificate and less than half of its time is over.
func (c *certificate) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current != nil && time.Now().Before(halfOf(c.current.Certificates[0].Leaf))
}

// halfOf is when half of a certificate's time is over.
func halfOf(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}

func same(a, b [3][]byte) bool {
	return bytes.Equal(a[0], b[0]) && bytes.Equal(a[1], b[1]) && bytes.Equal(a[2], b[2])
}

// readFiles returns the certificate, the key and the CAs, as PEM.
func (c *certificate) readFiles() (found [3][]byte, err error) {
	for i, file := range []string{c.certFile, c.keyFile, c.caFile} {
		if file == "" {
			continue
		}
		if found[i], err = readFile(file); err != nil {
			return found, fmt.Errorf("cannot read the TLS files: %w", err)
		}
	}
	if c.certFile != "" {
		return found, nil
	}
	c.log.Warn("the server's certificate is self-signed, which no client can verify; set server.Options.CertDir")
	if found[0], found[1], err = selfSigned(); err != nil {
		return found, fmt.Errorf("cannot make a self-signed certificate: %w", err)
	}
	return found, nil
}

// readFile reads a regular file: opening a named pipe, for instance, would block.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return os.ReadFile(name) // for its error
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file (%s); put a PEM file there", name, info.Mode())
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read; put a PEM file there", name, info.Size(), maxFile)
	default:
		return os.ReadFile(name)
	}
}

// parseLocked makes the configuration of what was read.
func (c *certificate) parseLocked(found [3][]byte) (*tls.Config, error) {
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
