// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// some returns CAs, each a second newer than the one before. The last was made at the given time.
func some(t *testing.T, n int, last time.Time) []authority {
	o := options()
	var all []authority
	for i := range n {
		ca, err := newAuthority(authorityName(&o), last.Add(time.Duration(i+1-n)*time.Second), &o)
		testkit.NoError(t, err)
		all = append(all, ca)
	}
	return all
}

// without removes the keys of all CAs but the last ones.
func without(all []authority, last int) []authority {
	for i := range all[:len(all)-last] {
		all[i].key = nil
	}
	return all
}

// changed makes a CA of a key from a template that is not quite ours.
func changed(t *testing.T, key *ecdsa.PrivateKey, change func(*x509.Certificate)) authority {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "other"}, NotBefore: bubbleStart.Add(-time.Minute), NotAfter: bubbleStart.Add(30 * time.Minute),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, MaxPathLen: 1, BasicConstraintsValid: true,
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	testkit.NoError(t, err)
	return authority{id: idOf(der), cert: cert, key: key}
}

// brokenSecrets are contents of a Secret that is ours.
func brokenSecrets(t *testing.T) map[string]map[string][]byte {
	all := map[string]map[string][]byte{"none": {}, "not PEM": {certKey: {0, 1, 2}, keyKey: {3}, trustedKey: {4}}}
	add := func(name string, cas ...authority) map[string][]byte {
		data, err := content(cas)
		testkit.NoError(t, err)
		all[name] = data
		return data
	}
	add("16 CAs without keys", without(some(t, 16, bubbleStart), 0)...)
	add("17 CAs, of which one has a key", without(some(t, 17, bubbleStart), 1)...)
	add("20 CAs with keys", some(t, 20, bubbleStart)...)
	add("20 CAs of the future", some(t, 20, bubbleStart.Add(20*time.Minute))...)
	for name, change := range map[string]func(*x509.Certificate){
		"a CA for other names":          func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.com"} },
		"a CA for clients":              func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
		"a CA that must not sign":       func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature },
		"a CA without a successor":      func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true },
		"a CA that never expires":       func(c *x509.Certificate) { c.NotAfter = bubbleStart.AddDate(7000, 0, 0) },
		"a CA that expires before that": func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(-time.Hour) },
	} {
		add(name, changed(t, some(t, 1, bubbleStart)[0].key, change))
	}
	pair := some(t, 1, bubbleStart)
	pair = append(pair, changed(t, pair[0].key, func(*x509.Certificate) {}))
	one, other := bundleOf(pair[:1]), bundleOf(pair[1:])
	data := add("two CAs of one key", pair...)
	data[certKey] = append(bytes.Clone(one), other...)
	all["two CAs of one key, the other first"] = mix(data, map[string]string{certKey: string(other) + string(one)})
	all["two CAs of one key, which is there twice"] = mix(data, map[string]string{keyKey: strings.Repeat(string(data[keyKey]), 2)})
	data = add("a CA", some(t, 1, bubbleStart)...)
	all["a CA twice"] = mix(data, map[string]string{certKey: strings.Repeat(string(data[certKey]), 2)})
	all["lines of Windows"] = mix(data, map[string]string{certKey: strings.ReplaceAll(string(data[certKey]), "\n", "\r\n")})
	all["a line about another CA"] = mix(data, map[string]string{trustedKey: "0123456789abcdef 2000-01-01T00:00:00Z\n"})
	two := some(t, 2, bubbleStart)
	data = add("two CAs", two...)
	far := fmt.Sprintf("%s 9999-12-31T23:59:59-01:00\n%s 9999-12-31T23:59:59-01:00\n", two[0].id, two[1].id)
	all["a wrong time"] = mix(data, map[string]string{trustedKey: far})
	return all
}

// TestA2_EachBrokenSecretHeals gives each content to a replica that starts, and to one that runs.
func TestA2_EachBrokenSecretHeals(t *testing.T) {
	for name, data := range brokenSecrets(t) {
		for _, when := range []string{"before", "after"} {
			t.Run(name+", "+when+" the start", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					if when == "after" {
						w.start(options())
						w.pass(2 * time.Minute)
					}
					before := w.secretWrites()
					w.put(corev1.SecretTypeOpaque, data)
					if when == "before" {
						w.start(options())
					}
					w.start(options())
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					w.reset(targets[0], pinned)
					w.mu.Lock()
					w.past = map[Target][]stored{} // API servers do not lag
					w.mu.Unlock()
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					w.judge()
					future := strings.Contains(name, "of the future") // it may be the clock
					if err := w.replicas[1].Check(t.Context()); err != nil && !future {
						t.Errorf("a replica is not ready: %v", err)
					}
					testkit.Equal(t, testkit.Err(parse(w.secret().Data)), nil, "the Secret is still broken")
					for _, target := range targets {
						testkit.Equal(t, w.bundle(target), string(w.secret().Data[certKey]), fmt.Sprintf("the bundle of %s is not that of the Secret", target))
					}
					testkit.AtMost(t, w.secretWrites()-before, 20)
				})
			})
		}
	}
}

// TestBundle_AWriteThatDoesNotLastSlowsDown has another client that is always faster than the next
// look. The certificate serves, and the bundles are restored.
func TestBundle_AWriteThatDoesNotLastSlowsDown(t *testing.T) {
	theirs, err := content(some(t, 1, bubbleStart))
	testkit.NoError(t, err)
	for name, c := range map[string]struct {
		undo func(*world)
		of   sim.Resource
		said string
	}{
		"a Secret that is emptied":       {undo: func(w *world) { w.put(corev1.SecretTypeOpaque, nil) }, of: sim.Secrets, said: "changes the Secret again and again; find out why"},
		"a Secret that is deleted":       {undo: func(w *world) { w.server.Remove(sim.Secrets, secretKey.Namespace, secretKey.Name) }, of: sim.Secrets, said: "was deleted"},
		"a Secret that gets another CA":  {undo: func(w *world) { w.put(corev1.SecretTypeOpaque, theirs) }, of: sim.Secrets, said: "changes the Secret again and again; find out why"},
		"a bundle that nothing can fill": {undo: (*world).strip, of: validating, said: "resets the caBundle again and again"},
	} {
		for _, replicas := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d replicas", name, replicas), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.undo(c.of, func() { c.undo(w) })
					for range replicas {
						w.start(options())
					}
					time.Sleep(20 * time.Minute)
					synctest.Wait()
					writes := w.secretWrites()
					if c.of != sim.Secrets {
						writes = w.server.Count("apply", c.of)
					}
					// a few at once, then with a delay of up to 5 minutes
					testkit.Between(t, writes, 5*replicas, 15*replicas)
					w.reset(targets[1], pinned)
					time.Sleep(time.Second)
					synctest.Wait()
					for i, r := range w.replicas {
						testkit.Equal(t, handshake(r.GetCertificate, []byte(w.bundle(targets[1]))), nil, fmt.Sprintf("replica %d is refused", i))
					}
					// Each makes one, and its successor.
					testkit.AtMost(t, strings.Count(w.logs.String(), "added a CA"), 2*replicas, "CAs were made")
					testkit.Contains(t, w.events(), c.said, fmt.Sprintf("no event has %q", c.said))
				})
			})
		}
	}
}

var validating = sim.Resource{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration", Name: "validatingwebhookconfigurations"}

// undo calls f before each read of an object that was written since the last call.
func (w *world) undo(of sim.Resource, f func()) {
	var mu sync.Mutex
	undone := "never"
	w.server.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Resource.Resource != of.Name || r.Verb != "get" {
			return nil, nil
		}
		version := func() string {
			if o := w.server.Object(of, r.Namespace, r.Name); o != nil {
				return o.GetResourceVersion()
			}
			return ""
		}
		mu.Lock()
		defer mu.Unlock()
		if version() != undone {
			f()
			undone = version()
		}
		return nil, nil
	})
}

// strip removes the bundles of the webhook configuration.
func (w *world) strip() {
	w.server.Put(validating, configuration())
}
