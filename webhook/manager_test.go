// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	gort "runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// wire is a listener without a network, for synctest bubbles.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), closed: make(chan struct{})} }

var errClosed = errors.New("closed")

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, errClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (w *wire) Addr() net.Addr { return &net.UnixAddr{Name: "wire", Net: "unix"} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case w.conns <- theirs:
		return ours, nil
	case <-w.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// certDir is a folder with a certificate for 127.0.0.1 that is its own CA. ca is PEM.
func certDir(t *testing.T) (dir string, ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{{127, 0, 0, 1}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.NoError(t, err)
	dir = t.TempDir()
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{"tls.crt": ca, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir, ca
}

// operator is a manager with webhooks, in a bubble.
type operator struct {
	*manager.Manager

	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	hooks  *webhook.Webhooks
	client *http.Client
	log    *bytes.Buffer // read it after Run
	stop   func()
	ended  chan error
}

func newOperator(t *testing.T, api http.RoundTripper) *operator {
	t.Helper()
	w := newWire()
	return newOperatorOn(t, api, w, w.dial)
}

func newOperatorOn(t *testing.T, api http.RoundTripper, l net.Listener, dial func(ctx context.Context, network, address string) (net.Conn, error)) *operator {
	t.Helper()
	dir, _ := certDir(t)
	scheme := shops()
	scheme.AddKnownTypeWithName(thingKind(), &Thing{})
	o := &operator{dial: dial, log: &bytes.Buffer{}, ended: make(chan error, 1)}
	o.hooks = webhook.New(webhook.Options{
		Name: "test", Scheme: scheme, Service: types.NamespacedName{Namespace: "test-system", Name: "test"},
		Server: server.Options{CertDir: dir, Listener: l},
	})
	o.Manager = manager.New(&rest.Config{Host: sim.Host, Transport: api}, manager.Options{
		Name: "test", Logger: slog.New(slog.NewTextHandler(o.log, nil)),
	})
	o.hooks.AddTo(o.Manager)
	transport := &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // self-signed
	t.Cleanup(transport.CloseIdleConnections)
	o.client = &http.Client{Transport: transport, Timeout: time.Minute}
	return o
}

func (o *operator) start(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	o.stop = stop
	go func() { o.ended <- o.Run(ctx) }()
}

// end stops the manager and returns its log.
func (o *operator) end(t *testing.T) string {
	t.Helper()
	o.stop()
	testkit.Equal(t, <-o.ended, nil)
	return o.log.String()
}

// answer is what a client receives.
type answer struct {
	code int
	text string
	took time.Duration
	http string
}

func (o *operator) post(t *testing.T, path string, body []byte) answer {
	began := time.Now()
	r, err := o.client.Post("https://x"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return answer{text: err.Error(), took: time.Since(began)}
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	testkit.Equal(t, err, nil)
	return answer{r.StatusCode, string(text), time.Since(began), r.Proto}
}

// background posts while the test goes on.
func (o *operator) background(t *testing.T, path string, body []byte) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- o.post(t, path, body) }()
	return got
}

func newAPI() *sim.Server { return sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases) }

// validating adds a validator of new Things.
func (o *operator) validating(create func(context.Context, *Thing) error) {
	webhook.AddValidator(o.hooks, webhook.Validator[*Thing]{Create: create}, webhook.Registration{})
}

func TestA3_AFunctionThatIgnoresItsContextStillGetsAnAnswer(t *testing.T) {
	for timeout, want := range map[string]struct{ context, answer time.Duration }{
		"": {9 * time.Second, 9500 * time.Millisecond}, "?timeout=1s": {500 * time.Millisecond, 750 * time.Millisecond},
		"?timeout=30s": {27 * time.Second, 28500 * time.Millisecond}, "?timeout=1h": {27 * time.Second, 28500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newOperator(t, newAPI())
			free, returned := make(chan struct{}), make(chan struct{})
			o.validating(func(ctx context.Context, _ *Thing) error {
				end, _ := ctx.Deadline()
				testkit.Equal(t, time.Until(end), want.context, timeout, "the context ends after")
				<-free
				close(returned)
				return nil
			})
			o.start(t)
			body := reviewOf(t, request(admissionv1.Create, thing, ""))
			got := o.post(t, validatePath+timeout, body)
			if text := fmt.Sprintf("webhook validate.things.test.example.com: the function has not returned within %s although its context has ended; return when ctx is done", want.answer); got.code != 500 || got.text != text || got.took != want.answer {
				t.Errorf("%s: %v", timeout, got)
			}
			select {
			case <-returned:
				t.Error("the function has returned")
			default:
			}
			// Its connection is not used again, so others are answered.
			if other := o.post(t, "/other", body); other.code != 404 || other.took > time.Second {
				t.Errorf("another request: %v", other)
			}
			close(free)
			<-returned
			log := o.end(t)
			testkit.Count(t, log, "the function has not returned", 1)
		})
	}
}

func TestA3_AnEndedContextIsStatus500(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		o.validating(func(ctx context.Context, _ *Thing) error {
			<-ctx.Done()
			return fmt.Errorf("the price is unknown: %w", ctx.Err())
		})
		o.start(t)
		got := o.post(t, validatePath+"?timeout=2s", reviewOf(t, request(admissionv1.Create, thing, "")))
		testkit.Equal(t, got.code, 500)
		testkit.Equal(t, got.took, 1500*time.Millisecond)
		testkit.Equal(t, got.text, "webhook validate.things.test.example.com: the price is unknown: context deadline exceeded")
		o.end(t)
	})
}

func TestA3_APanicIsStatus500WithItsStackInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		o.validating(func(context.Context, *Thing) error { panic("no price") })
		o.start(t)
		got := o.post(t, validatePath, reviewOf(t, request(admissionv1.Create, thing, "")))
		testkit.Equal(t, got.code, 500)
		testkit.Equal(t, got.text, "webhook validate.things.test.example.com: the function has panicked; the log of the operator has its stack")
		log := o.end(t)
		for _, want := range []string{
			"a webhook has panicked", `panic="no price"`, "manager_test.go", "webhook=validate.things.test.example.com",
			"uid=7c5a", "kind=Thing", "namespace=default", "name=a", "operation=CREATE",
		} {
			testkit.Contains(t, log, want, fmt.Sprintf("%s is missing in", want))
		}
	})
}

func TestA3_AFunctionThatEndsItsGoroutineGetsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		o.validating(func(context.Context, *Thing) error {
			gort.Goexit()
			return nil
		})
		o.start(t)
		got := o.post(t, validatePath, reviewOf(t, request(admissionv1.Create, thing, "")))
		testkit.Equal(t, got.code, 500)
		testkit.Contains(t, got.text, "the function ended its goroutine")
		o.end(t)
	})
}

// unreadable is an API server that does not list ConfigMaps: it hangs, or refuses.
type unreadable struct {
	*sim.Server

	hangs bool
}

func (u unreadable) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.URL.Path, "/configmaps") {
		return u.Server.RoundTrip(r)
	}
	if u.hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r, Header: http.Header{}}, nil
}

func TestA3_ReadsOfAnUnsyncedCacheLeaveItToTheFailurePolicy(t *testing.T) {
	for name, hangs := range map[string]bool{"the list hangs": true, "the list is refused": false} {
		synctest.Test(t, func(t *testing.T) {
			o := newOperator(t, unreadable{newAPI(), hangs})
			maps := cache.For[*corev1.ConfigMap](o.Cache())
			o.validating(func(ctx context.Context, _ *Thing) error {
				_, err := maps.Get(ctx, types.NamespacedName{Namespace: "default", Name: "prices"})
				return err
			})
			o.start(t)
			time.Sleep(time.Second)
			got := o.post(t, validatePath+"?timeout=5s", reviewOf(t, request(admissionv1.Create, thing, "")))
			if got.code != 500 || !strings.Contains(got.text, "not synced: ConfigMap.v1") || got.took > 4500*time.Millisecond {
				t.Errorf("%s: %v", name, got)
			}
			o.end(t)
		})
	}
}

// gated is an API server that lists ConfigMaps when the gate is open.
type gated struct {
	*sim.Server

	gate chan struct{}
}

func (g gated) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/configmaps") {
		select {
		case <-g.gate:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return g.Server.RoundTrip(r)
}

func TestA3_ReadsWaitForTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := gated{newAPI(), make(chan struct{})}
		o := newOperator(t, api)
		maps := cache.For[*corev1.ConfigMap](o.Cache())
		o.validating(func(ctx context.Context, _ *Thing) error {
			_, err := maps.List(ctx, cache.ListOptions{})
			return err
		})
		o.start(t)
		got := o.background(t, validatePath+"?timeout=5s", reviewOf(t, request(admissionv1.Create, thing, "")))
		time.Sleep(4 * time.Second)
		close(api.gate)
		if a := <-got; a.code != 200 || !strings.Contains(a.text, `"allowed":true`) {
			t.Error(a)
		}
		o.end(t)
	})
}

func TestA4_RequestsInFlightAtAStopGetTheirAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		came, free := make(chan struct{}), make(chan struct{})
		o.validating(func(ctx context.Context, _ *Thing) error {
			close(came)
			<-free
			return ctx.Err()
		})
		o.start(t)
		got := o.background(t, validatePath, reviewOf(t, request(admissionv1.Create, thing, "")))
		<-came
		o.stop()
		time.Sleep(5 * time.Second)
		testkit.Equal(t, o.post(t, validatePath, nil).code, 0, "a new connection after the stop")
		close(free)
		if a := <-got; a.code != 200 || !strings.Contains(a.text, `"allowed":true`) {
			t.Errorf("the request in flight: %v", a)
		}
		o.end(t)
	})
}

func TestA4_RequestsInFlightOverRealSocketsGetTheirAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	address := l.Addr().String()
	o := newOperatorOn(t, newAPI(), l, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	})
	came, free := make(chan struct{}, 20), make(chan struct{})
	o.validating(func(ctx context.Context, _ *Thing) error {
		came <- struct{}{}
		<-free
		return ctx.Err()
	})
	o.start(t)
	body := reviewOf(t, request(admissionv1.Create, thing, ""))
	var answers []<-chan answer
	for range cap(came) {
		answers = append(answers, o.background(t, validatePath+"?timeout=30s", body))
	}
	for range answers {
		<-came
	}
	o.stop()
	for { // until the listener is closed
		c, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(free)
	for _, got := range answers {
		if a := <-got; a.code != 200 || !strings.Contains(a.text, `"allowed":true`) {
			t.Errorf("a request in flight: %v", a)
		}
	}
	o.end(t)
}

func TestHTTP2IsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		o.validating(func(context.Context, *Thing) error { return nil })
		o.start(t)
		if got := o.post(t, validatePath, reviewOf(t, request(admissionv1.Create, thing, ""))); got.code != 200 || got.http != "HTTP/1.1" {
			t.Error(got)
		}
		o.end(t)
	})
}

func TestAWebhookThatIsAddedTooLateStopsTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		o.start(t)
		synctest.Wait()
		testkit.NoError(t, o.WaitReady(t.Context()))
		o.validating(func(context.Context, *Thing) error { return nil })
		err := <-o.ended
		testkit.ErrorContains(t, err, "webhook.AddValidator: the manager runs already, and the API server may not know the webhook; add webhooks before Run")
	})
}

func TestAPortInUseIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer l.Close()
	dir, _ := certDir(t)
	hooks := webhook.New(webhook.Options{
		Name: "test", Scheme: runtime.NewScheme(), Service: types.NamespacedName{Namespace: "test-system", Name: "test"},
		Server: server.Options{CertDir: dir, Address: l.Addr().String()},
	})
	m := manager.New(&rest.Config{Host: sim.Host, Transport: newAPI()}, manager.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	hooks.AddTo(m)
	want := fmt.Sprintf("the webhook server: the address %s is taken: stop what listens there, or choose another one", l.Addr())
	testkit.ErrorContains(t, m.Run(t.Context()), want)
}

func TestHooks_SeeEachRequestOnce(t *testing.T) {
	w := newHooks()
	var received []hook.WebhookRequest
	var answered []hook.WebhookAnswer
	webhook.AddValidator(w, webhook.Validator[*Thing]{Create: func(_ context.Context, o *Thing) error {
		switch o.Spec.Size {
		case 1:
			return nil
		case 2:
			return errors.New("closed")
		default:
			panic(o.Spec.Size)
		}
	}}, webhook.Registration{})
	h := w.Handler(hook.Join(
		hook.On(func(r *hook.WebhookRequest) { received = append(received, *r) }),
		hook.On(func(a *hook.WebhookAnswer) { a.Took = 0; answered = append(answered, *a) }),
	))
	for size := 1; size <= 3; size++ {
		post(h, validatePath, reviewOf(t, request(admissionv1.Create, sized(size), "")))
	}
	post(h, validatePath, nil)
	post(h, "/unknown", nil)
	r := hook.WebhookRequest{Path: validatePath, Webhook: "validate.things.test.example.com"}
	testkit.Equal(t, fmt.Sprint(received), fmt.Sprint([]hook.WebhookRequest{r, r, r, r}))
	if want := []hook.WebhookAnswer{
		{WebhookRequest: r, Code: 200, Allowed: true}, {WebhookRequest: r, Code: 200, Reason: "Forbidden"},
		{WebhookRequest: r, Code: 500, Panicked: true}, {WebhookRequest: r, Code: 400},
	}; fmt.Sprint(answered) != fmt.Sprint(want) {
		t.Error(answered)
	}
}
