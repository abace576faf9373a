// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// authority is a CA. It is immutable, and its key never leaves the Secret and the memory.
type authority struct {
	id      string // of the certificate
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey // nil: it cannot sign
	trusted time.Time         // since when all bundles have had it; zero: not known
}

func idOf(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8])
}

// newAuthority makes a CA that is valid from now, for all clocks.
func newAuthority(name string, now time.Time, o *Options) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := &x509.Certificate{ // x509 chooses a random SerialNumber
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-o.Skew), NotAfter: now.Add(o.CALifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:     true, MaxPathLen: 1, BasicConstraintsValid: true, // 1: its successor, see cross
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{id: idOf(der), cert: cert, key: key}, err
}

// cross returns cross-signed certificates of the CA, one by each other CA that has a key. A client
// that trusts only another CA verifies a leaf through them.
func (a authority) cross(all []authority) ([][]byte, error) {
	var signed [][]byte
	for _, other := range all {
		if other.id == a.id || other.key == nil {
			continue
		}
		template := &x509.Certificate{
			Subject: a.cert.Subject, SubjectKeyId: a.cert.SubjectKeyId, KeyUsage: x509.KeyUsageCertSign,
			NotBefore: a.cert.NotBefore, NotAfter: earliest(a.cert.NotAfter, other.cert.NotAfter),
			IsCA: true, MaxPathLenZero: true, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, other.cert, a.cert.PublicKey, other.key)
		if err != nil {
			return nil, err
		}
		signed = append(signed, der)
	}
	return signed, nil
}

// sign makes a server certificate that does not outlive the CA. The cross-signed certificates come
// with it.
func (a authority) sign(all []authority, now time.Time, o *Options) (*tls.Certificate, error) {
	chain, err := a.cross(all)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: o.DNSNames[0]},
		NotBefore: now.Add(-o.Skew), NotAfter: now.Add(o.LeafLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if len(template.Subject.CommonName) > 64 { // the limit of X.520
		template.Subject.CommonName = ""
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, name := range o.DNSNames {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, chain...), PrivateKey: key, Leaf: leaf}, a.verifies(leaf, now, o)
}

// verifies returns an error if a client that trusts the CA would refuse the certificate.
func (a authority) verifies(leaf *x509.Certificate, now time.Time, o *Options) error {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	var wrong []error
	for _, name := range o.DNSNames {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: now})
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// extensions are the ones of our CAs: the key's id, its usage, basic constraints, the issuer's key.
var extensions = []string{"2.5.29.14", "2.5.29.15", "2.5.29.19", "2.5.29.35"}

// checkAuthority returns why a certificate cannot be a CA of ours, or nil.
func checkAuthority(c *x509.Certificate) error {
	public, ok := c.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || public.Curve != elliptic.P256():
		return fmt.Errorf("the key of %q is not ECDSA P-256", c.Subject.CommonName)
	case !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 || c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) != nil:
		return fmt.Errorf("%q is not a self-signed CA", c.Subject.CommonName)
	case c.MaxPathLen == 0:
		return fmt.Errorf("%q cannot sign its successor", c.Subject.CommonName)
	}
	for _, e := range c.Extensions { // any other may restrict the leaves
		if !slices.Contains(extensions, e.Id.String()) {
			return fmt.Errorf("%q has the extension %s", c.Subject.CommonName, e.Id)
		}
	}
	return nil
}

func sorted(all []authority) []authority {
	return slices.SortedFunc(slices.Values(all), func(a, b authority) int {
		if c := a.cert.NotBefore.Compare(b.cert.NotBefore); c != 0 {
			return c
		}
		return bytes.Compare([]byte(a.id), []byte(b.id))
	})
}

func find(all []authority, id string) int {
	return slices.IndexFunc(all, func(a authority) bool { return a.id == id })
}
