// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// put replaces the Secret, as another client.
func (w *world) put(typ corev1.SecretType, data map[string][]byte) {
	w.server.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}, Type: typ, Data: data})
}

func (w *world) remove() {
	testkit.NoError(w.t, w.secrets.Delete(term.Without(w.t.Context()), secretKey))
}

// mix returns the data with some keys replaced.
func mix(data map[string][]byte, with map[string]string) map[string][]byte {
	data = maps.Clone(data)
	for key, value := range with {
		data[key] = []byte(value)
	}
	return data
}

func keyPEM(t *testing.T, key any) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// TestA2_ABadSecretNeverReplacesTheCertificate breaks the Secret of a running replica.
func TestA2_ABadSecretNeverReplacesTheCertificate(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.NoError(t, err)
	long := strings.Repeat("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 20)
	for name, c := range map[string]struct {
		typ      corev1.SecretType
		with     map[string]string
		added    string // to the times
		deleted  bool
		sentence string
		foreign  bool
	}{
		"deleted":             {deleted: true, sentence: "was deleted; it is written again from memory"},
		"empty":               {with: map[string]string{certKey: "", keyKey: "", trustedKey: ""}, sentence: "ca.crt has no usable certificate"},
		"not PEM":             {with: map[string]string{certKey: "hello"}, sentence: "ca.crt contains data that is not PEM"},
		"not a certificate":   {with: map[string]string{certKey: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, sentence: "certificate 1 of ca.crt cannot be used"},
		"many certificates":   {with: map[string]string{certKey: long}, sentence: "ca.crt has more than 16 blocks"},
		"another key":         {with: map[string]string{keyKey: keyPEM(t, other)}, sentence: "key 1 of ca.key matches no certificate of ca.crt"},
		"an RSA key":          {with: map[string]string{keyKey: keyPEM(t, weak)}, sentence: "key 1 of ca.key is not an ECDSA key in PKCS #8"},
		"a broken key":        {with: map[string]string{keyKey: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}, sentence: "key 1 of ca.key is not an ECDSA key in PKCS #8"},
		"no time":             {with: map[string]string{trustedKey: "yesterday"}, sentence: "trusted has a line that is not an id and a time"},
		"a line too many":     {added: "yesterday\n", sentence: "trusted has a line that is not an id and a time"},
		"of another tool":     {with: map[string]string{"tls.crt": "x"}, sentence: "belongs to something else: it has the key \"tls.crt\"", foreign: true},
		"of another type":     {typ: "example.com/cert", sentence: "belongs to something else: its type is example.com/cert", foreign: true},
		"expired":             {with: pemOf(t, bubbleStart.Add(-48*time.Hour)), sentence: "all CAs of the Secret website-system/website-webhook-ca have expired"},
		"of a clock far away": {with: pemOf(t, bubbleStart.Add(2*time.Hour)), sentence: "ahead of this replica's clock by more than Skew, 10s; synchronize the clocks of the nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.start(options())
				w.pass(2 * time.Minute)
				good, old := r.leaf.Load(), w.secret()
				if c.typ == "" {
					c.typ = corev1.SecretTypeOpaque
				}
				if c.deleted {
					w.remove()
				} else {
					data := mix(old.Data, c.with)
					data[trustedKey] = append(data[trustedKey], c.added...)
					w.put(c.typ, data)
				}
				w.pass(2 * time.Minute)
				testkit.Equal(t, testkit.Err(parse(w.secret().Data)), nil, "the Secret still has what cannot be used")
				testkit.Equal(t, r.leaf.Load(), good, "the certificate in use was replaced")
				if !c.foreign && c.sentence != "" && !strings.Contains(name, "clock") && !sameCAs(w.secret().Data, old.Data) {
					t.Errorf("the Secret was not repaired: %v", w.secret().Data)
				}
				if c.foreign && !maps.EqualFunc(w.secret().Data, mix(old.Data, c.with), bytes.Equal) {
					t.Error("a Secret of another tool was written")
				}
				for where, said := range map[string]string{"log": strings.ReplaceAll(w.logs.String(), "\\\"", "\""), "events": w.events()} {
					if strings.Count(said, c.sentence) != 1 && where == "events" || !strings.Contains(said, c.sentence) {
						t.Errorf("the %s should have once %q:\n%s", where, c.sentence, said)
					}
				}
				if err := r.Check(t.Context()); c.foreign && (err == nil || !strings.Contains(err.Error(), c.sentence)) {
					t.Errorf("Check does not describe it: %v", err)
				}
				w.pass(6 * time.Minute)
				testkit.NotEqual(t, r.leaf.Load(), good, "the certificate was not renewed from memory")
				w.checkNoKeys(old, w.secret())
			})
		})
	}
}

// bubbleStart is when the time of a bubble begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// pemOf returns the content of a Secret with one CA, made at a time.
func pemOf(t *testing.T, at time.Time) map[string]string {
	o := options()
	ca, err := newAuthority(authorityName(&o), at, &o)
	testkit.NoError(t, err)
	data, err := content([]authority{ca})
	testkit.NoError(t, err)
	return map[string]string{certKey: string(data[certKey]), keyKey: string(data[keyKey]), trustedKey: ""}
}

// sameCAs reports whether all CAs of want, with keys, are in the data.
func sameCAs(data, want map[string][]byte) bool {
	is, err := parse(data)
	wanted, _ := parse(want)
	return err == nil && !slices.ContainsFunc(wanted, func(a authority) bool {
		i := find(is, a.id)
		return i < 0 || (is[i].key == nil) != (a.key == nil)
	})
}

// TestA2_ANewReplicaReplacesALostSecretWithAnOverlap loses the Secret while only leaves of the old
// CA are in use.
func TestA2_ANewReplicaReplacesALostSecretWithAnOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.start(options())
		w.pass(2 * time.Minute)
		old.stop() // it still serves, but does not act
		w.remove()
		r := w.start(options())
		w.pass(30 * time.Second)
		testkit.ErrorContains(t, r.Check(t.Context()), "API servers may not trust it yet", "a replica with a new CA is ready too early")
		w.pass(time.Minute)
		testkit.Equal(t, r.Check(t.Context()), nil, "the new replica is not ready")
		testkit.Equal(t, strings.Count(w.bundle(targets[0]), "BEGIN"), 2, "the bundle has CAs, not the old and the new one")
	})
}

// FuzzParse reads Secrets with any content, and writes them back.
func FuzzParse(f *testing.F) {
	o := options()
	ca, err := newAuthority("ca", time.Now(), &o)
	testkit.NoError(f, err)
	ca.trusted = time.Now()
	data, err := content([]authority{ca})
	testkit.NoError(f, err)
	f.Add(data[certKey], data[keyKey], data[trustedKey])
	f.Add([]byte("x"), []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), []byte("a b"))
	f.Fuzz(func(t *testing.T, cert, key, trusted []byte) {
		all, err := parse(map[string][]byte{certKey: cert, keyKey: key, trustedKey: trusted})
		if err != nil && len(key) > 40 && strings.Contains(err.Error(), string(key)) {
			t.Errorf("the error quotes the key: %v", err)
		}
		written, err := content(all)
		testkit.NoError(t, err)
		if len(all) == 0 {
			return
		}
		again, err := parse(written)
		if err != nil || !slices.EqualFunc(all, again, same) {
			t.Errorf("wrote %d CAs, read %d: %v", len(all), len(again), err)
		}
	})
}
