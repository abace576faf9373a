// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// pair is a self-signed certificate that is its own CA.
type pair struct{ cert, key []byte }

func newPair(t *testing.T, name string, valid time.Duration) pair {
	t.Helper()
	return newPairFrom(t, name, time.Now().Add(-time.Minute), valid)
}

func newPairFrom(t *testing.T, name string, from time.Time, valid time.Duration) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: from, NotAfter: time.Now().Add(valid),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.NoError(t, err)
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})}
}

// secret is a folder like a Secret that the kubelet mounts: its files are links into a folder,
// which one rename replaces.
type secret struct {
	t       *testing.T
	dir     string
	version int
}

func newSecret(t *testing.T) *secret {
	s := &secret{t: t, dir: t.TempDir()}
	for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
		s.must(os.Symlink(filepath.Join("..data", file), filepath.Join(s.dir, file)))
	}
	return s
}

func (s *secret) must(err error) {
	s.t.Helper()
	testkit.NoError(s.t, err)
}

func (s *secret) put(cert, key, ca []byte) {
	s.t.Helper()
	s.version++
	data := fmt.Sprintf("..%d", s.version)
	s.must(os.Mkdir(filepath.Join(s.dir, data), 0o700))
	s.must(os.WriteFile(filepath.Join(s.dir, data, "tls.crt"), cert, 0o600))
	s.must(os.WriteFile(filepath.Join(s.dir, data, "tls.key"), key, 0o600))
	s.must(os.WriteFile(filepath.Join(s.dir, data, "ca.crt"), ca, 0o600))
	s.must(os.Symlink(data, filepath.Join(s.dir, "..tmp")))
	s.must(os.Rename(filepath.Join(s.dir, "..tmp"), filepath.Join(s.dir, "..data")))
}

// shake connects and returns the name in the server's certificate.
func shake(w *wire, client *tls.Config, t *testing.T) (string, error) {
	t.Helper()
	conn, err := w.dial(t.Context(), "", "")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	client.InsecureSkipVerify = true
	c := tls.Client(conn, client)
	if err := c.HandshakeContext(t.Context()); err != nil {
		return "", err
	}
	if _, err := fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	// TLS 1.3 refuses a client after its handshake.
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestCertificatesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		files, w := newSecret(t), newWire()
		one, two, brief := newPair(t, "one", 24*time.Hour), newPair(t, "two", 24*time.Hour), newPair(t, "brief", time.Hour)
		files.put(one.cert, one.key, nil)
		m, health := healthy(t, newAPI(), func(o *manager.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		addServer(m, serverOptions{Listener: w, CertDir: files.dir})
		stop, result := start(t, m)
		shows := func(name string) {
			t.Helper()
			time.Sleep(time.Second)
			got, err := shake(w, &tls.Config{}, t)
			testkit.Equal(t, got, name, "the server shows", err)
		}
		check := func(status int, parts ...string) {
			t.Helper()
			time.Sleep(time.Second)
			got, body := get(t, health, "http://x/readyz?verbose")
			_, line, _ := strings.Cut(body, "]certificate-server ")
			line, _, _ = strings.Cut(line, "\n")
			testkit.Equal(t, got, status, "readyz", body)
			for _, part := range parts {
				testkit.Contains(t, line, part, "the check says")
			}
		}
		shows("one")
		check(200, "ok")
		files.put(two.cert, two.key, nil)
		shows("two")
		check(200, "ok")

		// No two in a row have the same error.
		for _, broken := range []pair{{one.cert[:100], one.key}, {one.cert, two.key}, {}} {
			before := strings.Count(log.String(), "keeps its certificate")
			files.put(broken.cert, broken.key, nil)
			shows("two")
			check(200, "ok: the certificate that expires at 2000-01-02T", "stays in use: the certificate in "+files.dir+"/tls.crt and the key in ")
			shows("two")
			testkit.Count(t, log.String(), "keeps its certificate", before+1)
		}
		files.must(os.Remove(filepath.Join(files.dir, "tls.key")))
		shows("two")
		check(200, "ok: ", "cannot read the TLS files: open "+files.dir+"/tls.key: ")
		files.must(os.Symlink(filepath.Join("..data", "tls.key"), filepath.Join(files.dir, "tls.key")))

		files.put(brief.cert, brief.key, nil)
		shows("brief")
		check(200, "ok")
		files.put(nil, nil, nil)
		time.Sleep(time.Hour)
		check(500, "failed: the certificate in use expired at 2000-01-01T01:00:00Z, and a newer one cannot be used: ")
		files.put(brief.cert, brief.key, nil)
		check(500, "failed: the certificate in use expired at 2000-01-01T01:00:00Z, and a newer one cannot be used: the certificate in ", "expired at")
		files.put(one.cert, one.key, nil)
		check(200, "ok")
		shows("one")
		late := newPairFrom(t, "late", time.Now().Add(time.Hour), 24*time.Hour)
		files.put(late.cert, late.key, nil)
		shows("one")
		check(200, "ok: the certificate that expires at 2000-01-02T00:00:00Z stays in use: the certificate in ", "is not valid before 2000-01-01T02:00:")
		time.Sleep(time.Hour)
		shows("late")
		check(200, "ok")
		stop()
		ok(t, result())
	})
}

// The Pod can still serve its webhooks when the certificate of the metrics has expired.
func TestAnExpiredCertificateOfTheMetricsIsARemark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, w := newSecret(t), newWire()
		brief := newPair(t, "brief", time.Hour)
		files.put(brief.cert, brief.key, nil)
		m, health := healthy(t, newAPI(), func(o *manager.Options) { o.Metrics = newMetrics(t, prometheus.NewRegistry()) })
		addMetrics(m, serverOptions{Listener: w, CertDir: files.dir})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		want(t, health, "http://x/readyz/certificate-metrics-server", 200, "ok")
		testkit.Pass(2 * time.Hour)
		want(t, health, "http://x/readyz/certificate-metrics-server", 200, "ok")
		_, body := get(t, health, "http://x/readyz?verbose")
		testkit.Contains(t, body, "[+]certificate-metrics-server ok: the certificate expired at 2000-01-01T01:00:00Z; renew it")
		stop()
		ok(t, result())
	})
}

// The files are read once a second, for any number of connections.
func TestCertificatesAreReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, w := newSecret(t), newWire()
		one, two := newPair(t, "one", time.Hour), newPair(t, "two", time.Hour)
		files.put(one.cert, one.key, nil)
		m := newManager(newAPI(), nil)
		addServer(m, serverOptions{Listener: w, CertDir: files.dir})
		stop, result := start(t, m)
		time.Sleep(time.Minute)
		for _, want := range []string{"one", "one", "two"} {
			got, err := shake(w, &tls.Config{}, t)
			testkit.Equal(t, got, want, "the server shows", err)
			files.put(two.cert, two.key, nil)
			time.Sleep(600 * time.Millisecond)
		}
		stop()
		ok(t, result())
	})
}

func TestClientCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, w := newSecret(t), newWire()
		server, friend, stranger := newPair(t, "server", time.Hour), newPair(t, "friend", time.Hour), newPair(t, "stranger", time.Hour)
		files.put(server.cert, server.key, friend.cert)
		m := newManager(newAPI(), nil)
		addServer(m, serverOptions{
			Listener: w, CertFile: filepath.Join(files.dir, "tls.crt"), KeyFile: filepath.Join(files.dir, "tls.key"), ClientCAFile: filepath.Join(files.dir, "ca.crt"),
		})
		stop, result := start(t, m)
		lets := func(p *pair, want bool) {
			t.Helper()
			config := &tls.Config{}
			if p != nil {
				c, err := tls.X509KeyPair(p.cert, p.key)
				testkit.NoError(t, err)
				config.Certificates = []tls.Certificate{c}
			}
			_, err := shake(w, config, t)
			testkit.Equal(t, err == nil, want, err)
		}
		lets(&friend, true)
		lets(&stranger, false)
		lets(nil, false)
		files.put(server.cert, server.key, stranger.cert)
		time.Sleep(time.Second)
		lets(&friend, false)
		lets(&stranger, true)
		files.put(server.cert, server.key, []byte("nothing"))
		time.Sleep(time.Second)
		lets(&stranger, true)
		stop()
		ok(t, result())
	})
}

func TestTheServerSpeaksTLS12AndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Buffer
		w := newWire()
		m := newManager(newAPI(), func(o *manager.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		addServer(m, serverOptions{Listener: w})
		stop, result := start(t, m)
		testkit.Equal(t, testkit.Err(shake(w, &tls.Config{MaxVersion: tls.VersionTLS12}, t)), nil)
		if _, err := shake(w, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, t); err == nil { //nolint:gosec // to be refused
			t.Error("TLS 1.1 is spoken")
		}
		testkit.Count(t, log.String(), "self-signed", 1)
		before, err := serial(w, t)
		testkit.NoError(t, err)
		time.Sleep(300 * 24 * time.Hour) // it would expire after a year
		if after, err := serial(w, t); err != nil || after == before {
			t.Errorf("the self-signed certificate is not renewed: %s, %s, %v", before, after, err)
		}
		stop()
		ok(t, result())
	})
}

func serial(w *wire, t *testing.T) (string, error) {
	resp, err := w.client(t).Get("https://x/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	testkit.Equal(t, resp.StatusCode, http.StatusNotFound)
	return resp.TLS.PeerCertificates[0].SerialNumber.String(), nil
}

func TestCertificatesThatAreOfNoUseAtTheStart(t *testing.T) {
	files := newSecret(t)
	one, two := newPair(t, "one", time.Hour), newPair(t, "two", time.Hour)
	in := func(file string) string { return filepath.Join(files.dir, file) }
	for name, test := range map[string]struct {
		cert, key, ca []byte
		want          string
	}{
		"another key": {one.cert, two.key, one.cert, "the certificate in " + in("tls.crt") + " and the key in " + in("tls.key") + " cannot be used: tls: private key does not match public key"},
		"no PEM":      {[]byte("x"), one.key, one.cert, "the certificate in " + in("tls.crt") + " and the key in " + in("tls.key") + " cannot be used: tls: failed to find any PEM data in certificate input"},
		"no CA":       {one.cert, one.key, []byte("x"), "there is no certificate in " + in("ca.crt")},
	} {
		t.Run(name, func(t *testing.T) {
			files.put(test.cert, test.key, test.ca)
			m := newManager(newAPI(), nil)
			addServer(m, serverOptions{Address: "127.0.0.1:0", CertDir: files.dir, ClientCAFile: in("ca.crt")})
			testkit.Equal(t, fmt.Sprint(m.Run(t.Context())), `the manager "test" cannot run: the server: `+test.want, "Run returned")
		})
	}
}

// An RSA key may take seconds.
func TestTheSelfSignedCertificateHasAnECDSAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		m := newManager(newAPI(), nil)
		addServer(m, serverOptions{Listener: w})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		conn, err := w.dial(t.Context(), "", "")
		testkit.NoError(t, err)
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
		defer conn.Close()
		testkit.NoError(t, c.HandshakeContext(t.Context()))
		shown := c.ConnectionState().PeerCertificates
		if key, is := shown[0].PublicKey.(*ecdsa.PublicKey); len(shown) != 1 || !is || key.Curve != elliptic.P256() {
			t.Errorf("the server shows %d certificates with a %s key", len(shown), shown[0].PublicKeyAlgorithm)
		}
		testkit.Equal(t, shown[0].VerifyHostname("localhost"), nil)
		testkit.AtLeast(t, time.Until(shown[0].NotAfter), 364*24*time.Hour)
		stop()
		ok(t, result())
	})
}
