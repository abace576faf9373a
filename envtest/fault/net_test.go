// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// testTimeout only prevents a broken test from hanging.
const testTimeout = time.Minute

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// apiServer is an HTTPS server with HTTP/2.
func apiServer(t *testing.T, handler http.HandlerFunc) *rest.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	// Stop breaks connections that are just being made.
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: encodePEM(s.Certificate())}}
}

// proxied starts a proxy for target.
func proxied(t *testing.T, target *rest.Config) *Proxy {
	t.Helper()
	p, err := Start(testContext(t), target, Options{})
	testkit.NoError(t, err)
	t.Cleanup(p.Stop)
	return p
}

// through returns a client of cfg's user through p, or of target's if cfg is nil. It uses the
// protocol, or client-go's choice for "".
func through(t *testing.T, p *Proxy, cfg *rest.Config, protocol string) (*http.Client, *rest.Config) {
	t.Helper()
	if cfg == nil {
		cfg = p.origin
	}
	cfg, err := p.ConfigOf(cfg)
	testkit.NoError(t, err)
	if protocol != "" {
		cfg.NextProtos = []string{protocol}
	}
	return ownClient(t, cfg), cfg
}

// ownClient returns a client with its own connections, which are closed at the end.
func ownClient(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	own, err := newClient(cfg)
	testkit.NoError(t, err)
	t.Cleanup(own.close)
	return &http.Client{Transport: own.transport}
}

func get(ctx context.Context, t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	h, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	testkit.NoError(t, err)
	answer, err := c.Do(h)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return string(content), err
}

// open starts a watch and reads its first byte.
func open(ctx context.Context, t *testing.T, c *http.Client, url string) io.ReadCloser {
	t.Helper()
	h, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	testkit.NoError(t, err)
	answer, err := c.Do(h)
	testkit.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	testkit.NoError(t, testkit.Err(io.ReadFull(answer.Body, make([]byte, 1))))
	return answer.Body
}

// watched writes one byte and waits for the end of its request.
func watched(w http.ResponseWriter, h *http.Request) {
	fmt.Fprint(w, "x")
	_ = http.NewResponseController(w).Flush()
	<-h.Context().Done()
}

// eachProtocol runs a test with HTTP/1.1 and HTTP/2.
func eachProtocol(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

// A cut is a reset: of the connection with HTTP/1.1, of one stream with HTTP/2.
func TestReset(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxied(t, apiServer(t, watched))
		client, cfg := through(t, p, nil, protocol)
		ctx := testContext(t)
		pods := open(ctx, t, client, cfg.Host+"/api/v1/pods?watch=true")
		secrets := open(ctx, t, client, cfg.Host+"/api/v1/secrets?watch=true")
		if n := p.Cut(Match{Resources: []string{"pods"}}); n != 1 {
			t.Fatalf("%d requests are cut, want 1", n)
		}
		_, err := io.ReadAll(pods)
		if protocol == "h2" {
			testkit.ErrorContains(t, err, "stream error")
			testkit.ErrorContains(t, err, "INTERNAL_ERROR")
		} else {
			testkit.ErrorIs(t, err, syscall.ECONNRESET)
		}
		got := p.Requests(Match{})[0].Proto
		testkit.Equal(t, got == "HTTP/2.0", protocol == "h2", got)
		p.Add(Rule{Cut: true})
		testkit.NotEqual(t, testkit.Err(get(ctx, t, client, cfg.Host+"/version")), nil, "a request that is cut succeeds")
		// It is there still.
		freeze := p.Add(Rule{Match: Match{Resources: []string{"secrets"}}, Freeze: true})
		testkit.Equal(t, freeze.Hits(), 1, "the other watch has ended, too")
		secrets.Close()
	})
}

// A stream whose client does not read is cut, too.
func TestCutOfFullStream(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxied(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}))
		client, cfg := through(t, p, nil, protocol)
		ctx := testContext(t)
		f := p.Add(Rule{})
		body := open(ctx, t, client, cfg.Host+"/api/v1/pods?watch=true")
		if n := p.Cut(Match{}); n != 1 {
			t.Fatalf("%d requests are cut, want 1", n)
		}
		testkit.NoError(t, f.WaitEnded(ctx, 1))
		testkit.NotEqual(t, testkit.Err(io.Copy(io.Discard, body)), nil, "it ends without an error")
	})
}

func TestDownAndUp(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxied(t, apiServer(t, watched))
		client, cfg := through(t, p, nil, protocol)
		ctx := testContext(t)
		hold := p.Add(Rule{Match: Match{Resources: []string{"secrets"}}, Hold: true})
		body := open(ctx, t, client, cfg.Host+"/api/v1/pods?watch=true")
		held := make(chan error, 1)
		go func() {
			_, err := get(ctx, t, client, cfg.Host+"/api/v1/secrets")
			held <- err
		}()
		testkit.NoError(t, hold.WaitHeld(ctx, 1))
		p.Down()
		p.Down()
		testkit.NotEqual(t, testkit.Err(io.ReadAll(body)), nil, "the watch ends without an error")
		testkit.NotEqual(t, <-held, nil, "the held request succeeds")
		testkit.ErrorIs(t, testkit.Err(get(ctx, t, client, cfg.Host+"/version")), syscall.ECONNREFUSED, "while it is down, got")
		testkit.NoError(t, errors.Join(p.Up(), p.Up()))
		open(ctx, t, client, cfg.Host+"/api/v1/pods?watch=true").Close()
		p.Stop()
		p.Stop()
		testkit.ErrorIs(t, p.Up(), ErrStopped, "Up after Stop returns")
		testkit.ErrorIs(t, testkit.Err(p.Config()), ErrStopped, "Config after Stop returns")
	})
}

// Stop, and the end of Start's context, end held, open, hanging and frozen requests. Nothing is
// left (goleak).
func TestEnd(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		for name, rule := range map[string]Rule{"open": {}, "held": {Hold: true}, "hanging": {Hang: true}, "frozen": {Freeze: true}, "delayed": {Delay: time.Hour}, "late": {Lag: time.Hour}} {
			for _, how := range []string{"stop", "context"} {
				t.Run(name+"/"+how, func(t *testing.T) {
					ctx, cancel := context.WithCancel(testContext(t))
					p, err := Start(ctx, apiServer(t, watched), Options{})
					testkit.NoError(t, err)
					defer p.Stop()
					client, cfg := through(t, p, nil, protocol)
					f := p.Add(rule)
					result := make(chan error, 1)
					go func() {
						_, err := get(testContext(t), t, client, cfg.Host+"/api/v1/pods?watch=true")
						result <- err
					}()
					testkit.NoError(t, f.WaitHits(testContext(t), 1))
					if how == "stop" {
						p.Stop()
					}
					cancel()
					testkit.NotEqual(t, <-result, nil, "the request succeeds")
				})
			}
		}
	})
}

// Stop closes the connections to the API server, too.
func TestStopClosesConnections(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	closed := make(chan struct{}, 1)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	defer s.Close()
	p := proxied(t, &rest.Config{Host: s.URL})
	client, cfg := through(t, p, nil, "")
	ctx := testContext(t)
	testkit.NoError(t, testkit.Err(get(ctx, t, client, cfg.Host+"/version")))
	p.Stop()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Error("the connection is open after Stop")
	}
}

// Answers that the API server compressed stay compressed; others are not compressed.
func TestCompressionIsUntouched(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		fmt.Fprint(z, strings.Repeat("hello ", 100_000))
		z.Close()
		p := proxied(t, apiServer(t, func(w http.ResponseWriter, h *http.Request) {
			if h.Header.Get("Accept-Encoding") != "gzip" {
				fmt.Fprintf(w, "Accept-Encoding %q", h.Header["Accept-Encoding"])
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		}))
		client, cfg := through(t, p, nil, protocol)
		ctx := testContext(t)
		plain, err := get(ctx, t, client, cfg.Host+"/")
		testkit.NoError(t, err)
		testkit.Equal(t, plain, "Accept-Encoding []")
		h, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/", nil)
		testkit.NoError(t, err)
		h.Header.Set("Accept-Encoding", "gzip")
		answer, err := client.Do(h)
		testkit.NoError(t, err)
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		testkit.NoError(t, err)
		testkit.Equal(t, bytes.Equal(got, packed.Bytes()), true, len(got), "bytes")
		testkit.Equal(t, answer.Header.Get("Content-Encoding"), "gzip")
	})
}

// A request reaches the API server unchanged: method, path behind the prefix, query, headers, body.
func TestRequestIsUntouched(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		target := apiServer(t, func(w http.ResponseWriter, h *http.Request) {
			body, _ := io.ReadAll(h.Body)
			fmt.Fprintf(w, "%s %s %s %s %q %d %s", h.Method, h.RequestURI, h.UserAgent(), h.Header.Get("Impersonate-User"), h.Header["X-Forwarded-For"], len(body), body[:5])
		})
		target.Host += "/prefix"
		p := proxied(t, target)
		client, cfg := through(t, p, nil, protocol)
		const path = "/apis/a.dev/v1/things/a%2Fb?x=1;y&fieldManager=me"
		h, err := http.NewRequestWithContext(testContext(t), http.MethodPatch, cfg.Host+path, strings.NewReader(strings.Repeat("large", 1<<18)))
		testkit.NoError(t, err)
		h.Header.Set("User-Agent", "me")
		h.Header.Set("Impersonate-User", "jane")
		answer, err := client.Do(h)
		testkit.NoError(t, err)
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		want := fmt.Sprintf(`PATCH /prefix%s me jane [] %d large`, path, 5<<18)
		testkit.Equal(t, err, nil)
		testkit.Equal(t, string(got), want)
	})
}

// client-go decodes a refusal like one of the API server, in the requested format.
func TestRefuse(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxied(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not refused", http.StatusTeapot) }))
		for _, mediaType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			client, cfg := through(t, p, nil, protocol)
			cfg.ContentType = mediaType
			cfg.GroupVersion = &schema.GroupVersion{Version: "v1"}
			cfg.APIPath, cfg.NegotiatedSerializer = "/api", scheme.Codecs.WithoutConversion()
			answers := &recorder{RoundTripper: client.Transport}
			pods, err := rest.RESTClientForConfigAndClient(cfg, &http.Client{Transport: answers})
			testkit.NoError(t, err)
			f := p.Add(Rule{Match: Match{Config: cfg}, Times: 2, Refuse: apierrors.NewTooManyRequests("slow down", 7)})
			for _, verb := range []string{"GET", "POST"} {
				err = pods.Verb(verb).Resource("pods").MaxRetries(0).Do(testContext(t)).Error()
				seconds, suggested := apierrors.SuggestsClientDelay(err)
				if !apierrors.IsTooManyRequests(err) || seconds != 7 || !suggested || err.Error() != "slow down" {
					t.Errorf("%s: %s is refused with %v, %d s", mediaType, verb, err, seconds)
				}
				testkit.Equal(t, answers.last.Get("Content-Type"), mediaType)
				testkit.Equal(t, answers.last.Get("Retry-After"), "7", mediaType)
			}
			testkit.NotEqual(t, pods.Get().Resource("pods").Do(testContext(t)).Error(), nil)
			testkit.Equal(t, f.Hits(), 2)
			p.Add(Rule{Match: Match{Config: cfg}, Refuse: &apierrors.StatusError{ErrStatus: metav1.Status{Message: "no code"}}})
			if err := pods.Get().Resource("pods").Do(testContext(t)).Error(); apierrors.ReasonForError(err) != "" || err.Error() != "no code" || answers.status != 500 {
				t.Errorf("%s: refused with %v, %d", mediaType, err, answers.status)
			}
		}
	})
}

// recorder keeps the header of the last answer.
type recorder struct {
	http.RoundTripper
	last   http.Header
	status int
}

func (r *recorder) RoundTrip(h *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(h)
	if err == nil {
		r.last, r.status = answer.Header, answer.StatusCode
	}
	return answer, err
}

func TestUpgradeIsRefused(t *testing.T) {
	p := proxied(t, apiServer(t, watched))
	client, cfg := through(t, p, nil, "http/1.1")
	h, err := http.NewRequestWithContext(testContext(t), http.MethodPost, cfg.Host+"/api/v1/namespaces/a/pods/b/exec", nil)
	testkit.NoError(t, err)
	h.Header.Set("Connection", "Upgrade")
	h.Header.Set("Upgrade", "websocket")
	answer, err := client.Do(h)
	testkit.NoError(t, err)
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	testkit.Equal(t, answer.StatusCode, 501)
	testkit.Contains(t, string(body), "does not support upgraded connections")
}

// An unreachable API server breaks the client's connection.
func TestUnreachable(t *testing.T) {
	p := proxied(t, &rest.Config{Host: "http://127.0.0.1:1"}) // a port that no other test can get
	client, cfg := through(t, p, nil, "")
	f := p.Add(Rule{})
	got, err := get(testContext(t), t, client, cfg.Host+"/version")
	testkit.NotEqual(t, err, nil, got)
	testkit.NoError(t, f.WaitEnded(testContext(t), 1))
	if got := p.Requests(Match{})[0]; len(got.Effects) != 1 || !strings.HasPrefix(got.Effects[0], "unreachable: ") || got.Status != 0 {
		t.Errorf("the log says %+v", got)
	}
}

// Each client of a proxy has the identity of its configuration.
func TestCredentials(t *testing.T) {
	target := apiServer(t, func(w http.ResponseWriter, h *http.Request) {
		user, _, _ := h.BasicAuth()
		fmt.Fprintf(w, "%s%s", strings.TrimPrefix(h.Header.Get("Authorization"), "Basic "), user)
	})
	withToken := rest.CopyConfig(target)
	withToken.BearerToken = "jane"
	withFile := rest.CopyConfig(target)
	withFile.BearerTokenFile = t.TempDir() + "/token"
	writeFile(t, withFile.BearerTokenFile, "joe")
	withPlugin := rest.CopyConfig(target)
	withPlugin.ExecProvider = plugin(t, "kim")
	p := proxied(t, withToken)
	own := func() *rest.Config { // its own token, which the proxy does not know
		cfg, err := p.Config()
		testkit.NoError(t, err)
		cfg.BearerToken = "service account"
		return cfg
	}()
	anonymous := rest.CopyConfig(own)
	anonymous.BearerToken = ""
	for _, c := range []struct {
		of, as *rest.Config
		want   string
	}{{of: withToken, want: "Bearer jane"}, {of: withFile, want: "Bearer joe"}, {of: withPlugin, want: "Bearer kim"},
		{as: own, want: "Bearer service account"}, {as: anonymous, want: ""}} {
		var client *http.Client
		cfg := c.as
		if c.of != nil {
			client, cfg = through(t, p, c.of, "")
		} else {
			client = ownClient(t, cfg)
		}
		got, err := get(testContext(t), t, client, cfg.Host+"/")
		testkit.Equal(t, err, nil, c.want)
		testkit.Equal(t, got, c.want)
	}
	testkit.ErrorContains(t, testkit.Err(p.ConfigOf(own)), "leads to the proxy itself", "a configuration through the proxy is accepted")
}

// The configuration leads only through the proxy.
func TestConfigOf(t *testing.T) {
	p := proxied(t, apiServer(t, watched))
	cfg := rest.CopyConfig(p.origin)
	cfg.Username, cfg.Password, cfg.ServerName, cfg.UserAgent, cfg.QPS = "u", "p", "example.com", "me", 3
	cfg.Impersonate.UserName = "jane"
	got, err := p.ConfigOf(cfg)
	testkit.NoError(t, err)
	again, err := p.ConfigOf(cfg)
	testkit.NoError(t, err)
	testkit.Equal(t, got.Username, "")
	testkit.Equal(t, got.ServerName, "")
	testkit.NotEqual(t, got.Host, cfg.Host)
	testkit.NotEqual(t, string(got.CAData), string(cfg.CAData))
	testkit.Equal(t, got.UserAgent, "me")
	testkit.Equal(t, got.QPS, 3)
	testkit.Equal(t, got.Impersonate.UserName, "jane")
	testkit.NotEqual(t, got.BearerToken, again.BearerToken, "two clients have the same token")
}
