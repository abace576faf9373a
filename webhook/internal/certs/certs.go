// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/manager"
)

// Certs manages the certificates of one server. New makes one. All methods are safe for concurrent
// use.
type Certs struct {
	o    Options
	err  error // of Options.Validate
	leaf atomic.Pointer[tls.Certificate]
	last atomic.Pointer[outcome] // written by Run
}

// outcome is what the last look found.
type outcome struct {
	wrong []string // most important first
	ready bool     // this or an earlier look found everything in place
}

// New makes a Certs. It starts nothing. Run returns the error of Options.Validate.
func New(o Options) *Certs { return &Certs{o: o.withDefaults(), err: o.Validate()} }

// errNone is the error of handshakes before the first certificate.
var errNone = errors.New("webhook: there is no certificate yet; /readyz?verbose has the reason")

// GetCertificate returns the certificate for a handshake, for tls.Config. It waits for nothing.
// Before the first certificate it returns an error. Afterwards it always returns a certificate.
func (c *Certs) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if leaf := c.leaf.Load(); leaf != nil {
		return leaf, nil
	}
	return nil, errNone
}

// Check returns an error until the server uses a certificate that all bundles verify, and after
// that certificate has expired. The error names what is not in place. After the first success,
// problems are a [manager.Remark], because the certificate in use still serves.
func (c *Certs) Check(context.Context) error {
	leaf, last := c.leaf.Load(), c.last.Load()
	var text string
	if last != nil {
		text = strings.Join(last.wrong, "; ")
	}
	switch {
	case c.err != nil:
		return c.err
	case leaf != nil && time.Now().After(leaf.Leaf.NotAfter):
		return fmt.Errorf("the webhook certificate expired at %s: %s", leaf.Leaf.NotAfter.UTC().Format(time.RFC3339), text)
	case last == nil:
		return fmt.Errorf("the Secret %s is not read yet", c.o.Secret)
	case text == "":
		return nil
	case last.ready:
		return manager.Remark("the webhook certificate in use stays: " + text)
	}
	return errors.New(text)
}

func (c *Certs) found(wrong []string) {
	last := c.last.Load()
	c.last.Store(&outcome{wrong, len(wrong) == 0 || last != nil && last.ready})
}
