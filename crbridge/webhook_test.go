// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	theirs "sigs.k8s.io/controller-runtime/pkg/manager"
	theirmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// Thing is the stored version of a kind with two.
type Thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Color string `json:"color,omitempty"`
}

// Hub implements conversion.Hub.
func (*Thing) Hub() {}

func (t *Thing) DeepCopyObject() runtime.Object {
	return &Thing{TypeMeta: t.TypeMeta, ObjectMeta: *t.DeepCopy(), Color: t.Color}
}

// ThingV2 is the other version.
type ThingV2 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Paint string `json:"paint,omitempty"`
}

func (t *ThingV2) DeepCopyObject() runtime.Object {
	return &ThingV2{TypeMeta: t.TypeMeta, ObjectMeta: *t.DeepCopy(), Paint: t.Paint}
}

// ConvertTo implements conversion.Convertible.
func (t *ThingV2) ConvertTo(dst conversion.Hub) error {
	to := dst.(*Thing)
	to.ObjectMeta, to.Color = t.ObjectMeta, t.Paint
	return nil
}

// ConvertFrom implements conversion.Convertible.
func (t *ThingV2) ConvertFrom(src conversion.Hub) error {
	from := src.(*Thing)
	t.ObjectMeta, t.Paint = from.ObjectMeta, from.Color
	return nil
}

// thingHooks default the color, and reject one.
type thingHooks struct{}

func (thingHooks) Default(_ context.Context, t *Thing) error {
	if t.Color == "" {
		t.Color = "green"
	}
	return nil
}

func (thingHooks) ValidateCreate(_ context.Context, t *Thing) (admission.Warnings, error) {
	if t.Color == "red" {
		return nil, errors.New("red is taken")
	}
	return nil, nil
}

func (h thingHooks) ValidateUpdate(ctx context.Context, _, t *Thing) (admission.Warnings, error) {
	return h.ValidateCreate(ctx, t)
}

func (thingHooks) ValidateDelete(context.Context, *Thing) (admission.Warnings, error) {
	return nil, nil
}

func things() *runtime.Scheme {
	s := runtime.NewScheme()
	group := schema.GroupVersion{Group: "bridge.example.com", Version: "v1"}
	s.AddKnownTypeWithName(group.WithKind("Thing"), &Thing{})
	metav1.AddToGroupVersion(s, group)
	group.Version = "v2"
	s.AddKnownTypeWithName(group.WithKind("Thing"), &ThingV2{})
	metav1.AddToGroupVersion(s, group)
	return s
}

// freeAddress returns a loopback address without a listener.
func freeAddress(t *testing.T) (address string, port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer l.Close()
	return l.Addr().String(), l.Addr().(*net.TCPAddr).Port
}

// writeCertificate writes the files of a new certificate, and returns its CA.
func writeCertificate(t *testing.T, dir string) (ca []byte) {
	t.Helper()
	certificate, ca, err := envtest.ServingCertificate()
	testkit.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	testkit.NoError(t, err)
	var chain []byte
	for _, der := range certificate.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	for name, text := range map[string][]byte{"tls.crt": chain, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return ca
}

// callerOf returns a client that trusts the CA.
func callerOf(t *testing.T, ca []byte) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// hooked returns a manager whose webhook server has a certificate of ca.
func hooked(t *testing.T) (mgr *ctrl.Bridge, address, dir string, ca []byte) {
	t.Helper()
	dir = t.TempDir()
	ca = writeCertificate(t, dir)
	address, port := freeAddress(t)
	o := ctrl.Options{WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir})}
	return managerOn(t, sim.NewServer(sim.ConfigMaps).Config(), o, ctrl.Settings{}), address, dir, ca
}

// TestWebhooks_ARealAPIServerCallsThem: defaulting, validating and conversion, as
// controller-runtime's builder registers them.
func TestWebhooks_ARealAPIServerCallsThem(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		testkit.Equal(t, cluster.Stop(), nil)
	})
	dir := t.TempDir()
	ca := writeCertificate(t, dir)
	address, port := freeAddress(t)
	own := webhook.NewServer(webhook.Options{Port: port, CertDir: dir, TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}})
	mgr := managerOn(t, cluster.Config(), ctrl.Options{Scheme: things(), WebhookServer: own}, ctrl.Settings{})
	testkit.NoError(t, ctrl.NewWebhookManagedBy(mgr, &Thing{}).WithDefaulter(thingHooks{}).WithValidator(thingHooks{}).Complete())
	defer ended(t, start(t, mgr))
	testkit.NoError(t, testkit.Err(cluster.InstallWebhooks(t.Context(), envtest.Webhooks{Paths: []string{"testdata/webhook"}, Address: address, CABundle: ca})))
	admin, err := client.New(cluster.Config(), client.Options{Scheme: things()})
	testkit.NoError(t, err)
	made := &Thing{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := admin.Create(t.Context(), made); err != nil || made.Color != "green" {
		t.Errorf("the color is %q, want the default green: %v", made.Color, err)
	}
	made.Color = "red"
	testkit.ErrorContains(t, admin.Update(t.Context(), made), "red is taken", "the update to red returned")
	var converted ThingV2
	testkit.Equal(t, admin.Get(t.Context(), client.ObjectKeyFromObject(made), &converted), nil)
	testkit.Equal(t, converted.Paint, "green")
}

// TestWebhooks_AStopLetsRequestsFinish: the context of a request continues, and its client gets the
// answer.
func TestWebhooks_AStopLetsRequestsFinish(t *testing.T) {
	mgr, address, _, ca := hooked(t)
	came, free := make(chan struct{}), make(chan struct{})
	mgr.GetWebhookServer().Register("/held", &webhook.Admission{Handler: admission.HandlerFunc(func(ctx context.Context, _ admission.Request) admission.Response {
		close(came)
		<-free
		return admission.Allowed(fmt.Sprint("the context: ", ctx.Err()))
	})})
	stopping := make(chan struct{})
	if err := mgr.Add(theirs.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		close(stopping)
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	stop := start(t, mgr)
	answer := make(chan string, 1)
	go func() {
		review := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1"}}`
		r, err := callerOf(t, ca).Post("https://"+address+"/held", "application/json", strings.NewReader(review))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		answer <- fmt.Sprint(r.StatusCode, string(text), err)
	}()
	<-came
	result := make(chan error, 1)
	go func() { result <- stop() }()
	<-stopping
	close(free)
	if got := <-answer; !strings.HasPrefix(got, "200") || !strings.Contains(got, "the context: \\u003cnil\\u003e") {
		t.Errorf("the request that ran at the stop got %s", got)
	}
	testkit.Equal(t, <-result, nil)
	families, err := theirmetrics.Registry.Gather()
	testkit.NoError(t, err)
	if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
		return f.GetName() == "controller_runtime_webhook_requests_total" && strings.Contains(f.String(), `"/held"`)
	}) {
		t.Error("the request is not counted")
	}
}

// TestWebhooks_UseANewCertificateOnDisk, without a restart.
func TestWebhooks_UseANewCertificateOnDisk(t *testing.T) {
	mgr, address, dir, ca := hooked(t)
	mgr.GetWebhookServer().Register("/a", http.NotFoundHandler())
	defer ended(t, start(t, mgr))
	get := func(ca []byte) error {
		r, err := callerOf(t, ca).Get("https://" + address + "/a")
		if err != nil {
			return err
		}
		return r.Body.Close()
	}
	testkit.NoError(t, get(ca))
	ready := slices.IndexFunc(mgr.Setpoint().Readyz(), func(c manager.Check) bool {
		return c.Name() == "certificate-webhook-server" && c.Check(t.Context()) == nil
	})
	if ready < 0 {
		t.Error("/readyz has no check of the certificate that passes")
	}
	newer := writeCertificate(t, dir)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for err := get(newer); err != nil; err = get(newer) {
		if !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Fatal(err)
		}
		<-again.C
	}
}

// TestWebhooks_Start returns one error for missing files, and none for a server that is disabled.
func TestWebhooks_Start(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "certs")
	for want, o := range map[string]webhook.Options{
		filepath.Join(missing, "tls.crt") + ": no such file or directory; mount the Secret of the certificate there, or set webhook.Options.CertDir": {CertDir: missing},
		filepath.Join(missing, "a.crt"): {CertDir: missing, CertName: "a.crt", KeyName: "a.key"},
		"":                              {CertDir: missing, Port: -1},
	} {
		mgr := managerOn(t, sim.NewServer(sim.ConfigMaps).Config(), ctrl.Options{WebhookServer: webhook.NewServer(o)}, ctrl.Settings{})
		checker := mgr.GetWebhookServer().StartedChecker()
		if want == "" {
			ended(t, start(t, mgr))
			continue
		}
		if err := mgr.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "the webhook server: cannot read the TLS files") || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
		testkit.NotEqual(t, checker(nil), nil, "the server was started")
	}
}

// TestWebhooks_AddedDuringStart are served, too.
func TestWebhooks_AddedDuringStart(t *testing.T) {
	mgr, address, _, ca := hooked(t)
	defer ended(t, start(t, mgr))
	w := mgr.GetWebhookServer()
	w.Register("/a", http.NotFoundHandler())
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for w.StartedChecker()(nil) != nil {
		<-again.C
	}
	r, err := callerOf(t, ca).Get("https://" + address + "/a")
	testkit.NoError(t, err)
	_ = r.Body.Close()
}

// TestWebhooks_MapTheirOptions: clients need a certificate, and the program's own one is served.
func TestWebhooks_MapTheirOptions(t *testing.T) {
	dir := t.TempDir()
	ca := writeCertificate(t, dir)
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "clients.crt"), ca, 0o600))
	other, otherCA, err := envtest.ServingCertificate()
	testkit.NoError(t, err)
	provide := func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &other, nil }
	}
	for name, c := range map[string]struct {
		o    webhook.Options
		ca   []byte
		want string
	}{
		"ClientCAName":   {webhook.Options{CertDir: dir, ClientCAName: "clients.crt"}, ca, "certificate required"},
		"GetCertificate": {webhook.Options{TLSOpts: []func(*tls.Config){provide}}, otherCA, ""},
	} {
		t.Run(name, func(t *testing.T) {
			address, port := freeAddress(t)
			c.o.Host, c.o.Port = "127.0.0.1", port
			mgr := managerOn(t, sim.NewServer(sim.ConfigMaps).Config(), ctrl.Options{}, ctrl.Settings{})
			own := webhook.NewServer(c.o)
			own.Register("/a", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
			testkit.NoError(t, mgr.Add(own))
			defer ended(t, start(t, mgr))
			r, err := callerOf(t, c.ca).Get("https://" + address + "/a")
			if err == nil {
				_ = r.Body.Close()
				testkit.Equal(t, r.StatusCode, http.StatusAccepted, "another handler has answered")
			}
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the request returned %v, want %q", err, c.want)
			}
		})
	}
}

// TestWebhooks_OptionsWithoutACounterpart are errors of New, or in the log.
func TestWebhooks_OptionsWithoutACounterpart(t *testing.T) {
	provide := func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	}
	for want, o := range map[string]webhook.Options{
		"ClientAuth, which has no counterpart; set ClientCAName": {TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }}},
		"MaxVersion, which has no counterpart; remove it":        {TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }}},
		"TLS_RSA_WITH_RC4_128_SHA is insecure":                   {TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.CipherSuites = []uint16{tls.TLS_RSA_WITH_RC4_128_SHA} }}},
		"remove GetCertificate, changed files are used at once":  {ClientCAName: "ca.crt", TLSOpts: []func(*tls.Config){provide}},
		"the lowest version is TLS 1.2":                          {TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS10 }}},
		"": {TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_AES_128_GCM_SHA256}
		}}},
	} {
		var log []string
		options := ctrl.Options{
			WebhookServer: webhook.NewServer(o), Metrics: metricsserver.Options{BindAddress: "0"},
			Logger: funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}),
		}
		_, err := ctrl.NewManager(sim.NewServer(sim.ConfigMaps).Config(), options)
		if err != nil {
			log = append(log, err.Error())
		}
		testkit.NotEqual(t, slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, want) }), want == "", fmt.Sprintf("New reports %q", log), fmt.Sprintf("want %q", want))
	}
}

// customHooks is an implementation of the program's own.
type customHooks struct {
	webhook.Server

	started chan struct{}
}

func (c customHooks) Start(ctx context.Context) error {
	close(c.started)
	<-ctx.Done()
	return nil
}

// TestWebhooks_AnotherImplementationRuns as it is.
func TestWebhooks_AnotherImplementationRuns(t *testing.T) {
	own := customHooks{started: make(chan struct{})}
	mgr := managerOn(t, sim.NewServer(sim.ConfigMaps).Config(), ctrl.Options{WebhookServer: own}, ctrl.Settings{})
	testkit.Equal(t, mgr.GetWebhookServer(), webhook.Server(own), "GetWebhookServer returns another server")
	stop := start(t, mgr)
	<-own.started
	ended(t, stop)
}

// TestWebhooks_TwoServers: a program may have a second one, on another port.
func TestWebhooks_TwoServers(t *testing.T) {
	mgr, address, dir, ca := hooked(t)
	mgr.GetWebhookServer().Register("/a", http.NotFoundHandler())
	_, port := freeAddress(t)
	testkit.NoError(t, mgr.Add(webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir})))
	defer ended(t, start(t, mgr))
	for _, at := range []string{address, fmt.Sprintf("127.0.0.1:%d", port)} {
		r, err := callerOf(t, ca).Get("https://" + at + "/a")
		testkit.NoError(t, err)
		_ = r.Body.Close()
	}
}

// TestMetrics_ExtraHandlerWithoutAServer: 0 is the default address of kubebuilder's main function.
func TestMetrics_ExtraHandlerWithoutAServer(t *testing.T) {
	mgr := managerOn(t, sim.NewServer(sim.ConfigMaps).Config(), ctrl.Options{}, ctrl.Settings{})
	testkit.Equal(t, mgr.AddMetricsServerExtraHandler("/a", http.NotFoundHandler()), nil)
}
