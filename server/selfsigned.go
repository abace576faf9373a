// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"time"
)

// selfSignedFor is how long a self-signed certificate is valid. Half of that later it is replaced.
const selfSignedFor = 365 * 24 * time.Hour

// selfSigned makes a certificate for the host's name and localhost, as PEM. Its key is ECDSA P-256:
// an RSA key may take seconds.
func selfSigned() (certificate, key []byte, err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{ // without a SerialNumber, x509 takes a random one
		Subject:   pkix.Name{CommonName: host},
		DNSNames:  []string{host, "localhost"},
		NotBefore: now.Add(-time.Hour), // for clients whose clocks are slow
		NotAfter:  now.Add(selfSignedFor),
		KeyUsage:  x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
