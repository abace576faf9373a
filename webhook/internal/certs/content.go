// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret.
const (
	certKey    = "ca.crt"  // certificates, oldest first
	keyKey     = "ca.key"  // their keys, in any order
	trustedKey = "trusted" // lines: the id of a CA, and since when all bundles have it
)

// maxAuthorities limits what is read from the Secret. A rotation needs two or three.
const maxAuthorities = 16

// foreign returns why the Secret belongs to something else, or "".
func foreign(s *corev1.Secret) string {
	if s.Type != corev1.SecretTypeOpaque && s.Type != "" {
		return fmt.Sprintf("its type is %s", s.Type)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		if key != certKey && key != keyKey && key != trustedKey {
			return fmt.Sprintf("it has the key %q", key)
		}
	}
	if s.Immutable != nil && *s.Immutable {
		return "it is immutable"
	}
	return ""
}

// parse returns the CAs of the Secret's data, and an error for each part that cannot be used. No
// error contains a key.
func parse(data map[string][]byte) ([]authority, error) {
	var all []authority
	var wrong []error
	for n, block := range blocks(data[certKey], &wrong, certKey) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			err = checkAuthority(c)
		}
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("certificate %d of %s cannot be used: %w", n+1, certKey, err))
		case find(all, idOf(c.Raw)) < 0:
			all = append(all, authority{id: idOf(c.Raw), cert: c})
		}
	}
	for n, block := range blocks(data[keyKey], &wrong, keyKey) {
		if err := addKey(all, block.Bytes); err != nil {
			wrong = append(wrong, fmt.Errorf("key %d of %s %w", n+1, keyKey, err))
		}
	}
	for line := range strings.Lines(string(data[trustedKey])) {
		if err := addTrusted(all, line); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(all) == 0 && len(data) > 0 {
		wrong = append(wrong, fmt.Errorf("%s has no usable certificate", certKey))
	}
	return sorted(all), errors.Join(wrong...)
}

// blocks returns the blocks of PEM data. Text outside of blocks is an error.
func blocks(data []byte, wrong *[]error, name string) []*pem.Block {
	var all []*pem.Block
	for block, rest := pem.Decode(data); ; block, rest = pem.Decode(rest) {
		if block == nil {
			if len(strings.TrimSpace(string(rest))) > 0 {
				*wrong = append(*wrong, fmt.Errorf("%s contains data that is not PEM", name))
			}
			return all
		}
		if len(all) == maxAuthorities {
			*wrong = append(*wrong, fmt.Errorf("%s has more than %d blocks", name, maxAuthorities))
			return all
		}
		all = append(all, block)
	}
}

// addKey gives a key to the CAs that it signs for. Its errors do not quote the key.
func addKey(all []authority, der []byte) error {
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return errors.New("is not an ECDSA key in PKCS #8")
	}
	err = fmt.Errorf("matches no certificate of %s", certKey)
	for i := range all {
		if key.PublicKey.Equal(all[i].cert.PublicKey) { // a CA may be renewed with its key
			all[i].key, err = key, nil
		}
	}
	return err
}

func addTrusted(all []authority, line string) error {
	id, at, _ := strings.Cut(strings.TrimSpace(line), " ")
	since, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return fmt.Errorf("%s has a line that is not an id and a time", trustedKey)
	}
	if i := find(all, id); i >= 0 {
		all[i].trusted = since
	}
	return nil
}

func content(all []authority) (map[string][]byte, error) {
	data := map[string][]byte{certKey: bundleOf(all)}
	for i, a := range all {
		if a.key != nil && !slices.ContainsFunc(all[:i], func(b authority) bool { return b.key != nil && b.key.Equal(a.key) }) {
			der, err := x509.MarshalPKCS8PrivateKey(a.key)
			if err != nil {
				return nil, err
			}
			data[keyKey] = append(data[keyKey], pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
		}
		if !a.trusted.IsZero() {
			data[trustedKey] = fmt.Appendf(data[trustedKey], "%s %s\n", a.id, a.trusted.UTC().Format(time.RFC3339Nano))
		}
	}
	return data, nil
}

func bundleOf(all []authority) []byte {
	var bundle []byte
	for _, a := range all {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	}
	return bundle
}
