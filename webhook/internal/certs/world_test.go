// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const serverName = "website-webhook.website-system.svc"

var secretKey = types.NamespacedName{Namespace: "website-system", Name: "website-webhook-ca"}

func configuration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	none, path := admissionregistrationv1.SideEffectClassNone, "/validate"
	config := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "website-system", Name: "website-webhook", Path: &path}}
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "website-operator"}}
	for _, name := range []string{"one.example.com", "two.example.com"} {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: config, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
	}
	return c
}

func definition() *unstructured.Unstructured {
	version := func(name string, storage bool) any {
		return map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "websites.web.example.com"},
		"spec": map[string]any{
			"group": "web.example.com", "scope": "Namespaced", "names": map[string]any{"plural": "websites", "singular": "website", "kind": "Website", "listKind": "WebsiteList"},
			"versions": []any{version("v1", true), version("v1alpha1", false)},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"conversionReviewVersions": []any{"v1"},
				"clientConfig":             map[string]any{"service": map[string]any{"namespace": "website-system", "name": "website-webhook", "path": "/convert"}},
			}},
		},
	}}
}

var targets = []Target{{Validating, "website-operator"}, {CustomResourceDefinition, "websites.web.example.com"}}

func options() Options {
	return Options{
		Secret: secretKey, DNSNames: []string{serverName},
		CALifetime: 30 * time.Minute, LeafLifetime: 10 * time.Minute, Skew: 10 * time.Second, Propagation: time.Minute,
	}
}

// world is a simulated API server with replicas, in a bubble. It makes the handshakes of API
// servers that lag behind the stored bundles.
type world struct {
	t       *testing.T
	server  *sim.Server
	api     *client.Client
	secrets *client.Handle[*corev1.Secret]
	logs    testkit.Buffer
	hooks   *hook.Hook
	lag     time.Duration // how long an API server may use a bundle that was replaced

	replicas []*replica
	watches  sync.WaitGroup

	mu       sync.Mutex          // guards past
	past     map[Target][]stored // each bundle and when it replaced the one before
	verified map[string]bool     // leaf and bundle
	served   map[string]bool     // the CAs that signed served leaves
}

// stored is a bundle of a target.
type stored struct {
	pem   string
	since time.Time
}

type replica struct {
	*Certs

	client *client.Client
	stop   func()
	ready  bool // as the Service sees it
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	if objects == nil {
		objects = []runtime.Object{configuration(), definition()}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "website-system"}}
	w := &world{t: t, server: sim.New(t, scheme.Scheme, append(objects, namespace)...), lag: options().Propagation, past: map[Target][]stored{}, verified: map[string]bool{}, served: map[string]bool{}}
	w.api = w.newClient()
	w.secrets = client.For[*corev1.Secret](w.api)
	ctx, cancel := context.WithCancel(t.Context())
	for _, target := range targets {
		w.watches.Go(func() { w.record(ctx, target) })
	}
	t.Cleanup(func() {
		cancel()
		w.watches.Wait()
		for _, r := range w.replicas {
			r.stop()
		}
	})
	return w
}

// record keeps the bundles of a target. All bundles of a target must be the same.
func (w *world) record(ctx context.Context, t Target) {
	h := client.ForKind[*unstructured.Unstructured](w.api, t.Kind.gvk())
	for event, err := range h.WatchLive(ctx, client.ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", t.Name)}) {
		if err != nil {
			return
		}
		bundles := observe(t, event.Object).bundles
		if len(bundles) == 0 || len(bundles[0].pem) == 0 { // not installed yet
			continue
		}
		for _, b := range bundles {
			if !bytes.Equal(b.pem, bundles[0].pem) {
				w.t.Errorf("%s: the bundles of %s differ", time.Now(), t)
			}
		}
		w.mu.Lock()
		w.past[t] = append(w.past[t], stored{string(bundles[0].pem), time.Now()})
		w.mu.Unlock()
	}
}

// recent returns the bundles that an API server may have.
func (w *world) recent(t Target) []stored {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.past[t]) > 1 && time.Since(w.past[t][1].since) > w.lag {
		w.past[t] = w.past[t][1:]
	}
	return w.past[t]
}

func (w *world) newClient() *client.Client {
	c, err := client.New(w.server.Config(), client.Options{RequireTerm: true, FieldOwner: "the-tool"})
	testkit.NoError(w.t, err)
	return c
}

// start runs a replica, with an event recorder of its own.
func (w *world) start(o Options) *replica {
	r := &replica{Certs: New(o), client: w.newClient()}
	ctx, cancel := context.WithCancel(logr.NewContextWithSlogLogger(w.t.Context(), slog.New(slog.NewTextHandler(&w.logs, nil))))
	recorder := events.New(r.client, events.Options{Name: "website-operator", Instance: "a"})
	var running sync.WaitGroup
	running.Go(func() { _ = recorder.Run(ctx) })
	running.Go(func() {
		testkit.Equal(w.t, r.Run(ctx, r.client, recorder, w.hooks, targets...), nil)
	})
	r.stop = func() {
		cancel()
		running.Wait()
	}
	w.replicas = append(w.replicas, r)
	return r
}

// kill ends a replica, which leaves the Service.
func (w *world) kill(i int) {
	w.replicas[i].stop()
	w.replicas = append(w.replicas[:i:i], w.replicas[i+1:]...)
}

// pass lets virtual time pass and judges all handshakes meanwhile.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(15*time.Second, time.Until(end)))
		synctest.Wait()
		w.judge()
	}
}

// judge makes a handshake with each ready replica, for each bundle that an API server may have.
func (w *world) judge() {
	now, o := time.Now(), options()
	for i, r := range w.replicas {
		if r.ready = r.ready || r.Check(w.t.Context()) == nil; !r.ready {
			continue
		}
		leaf, _ := r.GetCertificate(nil)
		testkit.Equal(w.t, now.Add(o.Skew).After(leaf.Leaf.NotAfter), false, now, fmt.Sprintf("replica %d serves a leaf that ends at %s", i, leaf.Leaf.NotAfter))
		for _, t := range targets {
			for _, s := range w.recent(t) {
				w.handshake(r, leaf, s, t)
			}
		}
	}
}

func (w *world) handshake(r *replica, leaf *tls.Certificate, s stored, t Target) {
	w.served[string(leaf.Leaf.AuthorityKeyId)] = true
	key := string(leaf.Certificate[0]) + s.pem
	if w.verified[key] {
		return
	}
	if err := handshake(r.GetCertificate, []byte(s.pem)); err != nil {
		w.t.Errorf("%s: an API server with the bundle of %s since %s refuses: %v", time.Now(), t, s.since, err)
	}
	w.verified[key] = true
}

// handshake connects as an API server does.
func handshake(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), bundle []byte) error {
	near, far := net.Pipe()
	defer near.Close()
	// A refusal ends so: a pipe has no buffer, and both sides may be writing.
	_, _ = near.SetDeadline(time.Now().Add(time.Second)), far.SetDeadline(time.Now().Add(time.Second))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	var server sync.WaitGroup
	defer server.Wait()
	server.Go(func() {
		defer far.Close()
		_ = tls.Server(far, &tls.Config{GetCertificate: certificate, SessionTicketsDisabled: true}).Handshake()
	})
	return tls.Client(near, &tls.Config{RootCAs: pool, ServerName: serverName}).Handshake()
}

func (w *world) object(t Target) *unstructured.Unstructured {
	u, err := client.ForKind[*unstructured.Unstructured](w.api, t.Kind.gvk()).GetLive(w.t.Context(), types.NamespacedName{Name: t.Name})
	testkit.NoError(w.t, err)
	return u
}

// bundle returns the bundle of a target.
func (w *world) bundle(t Target) string {
	for _, b := range observe(t, w.object(t)).bundles {
		return string(b.pem)
	}
	return ""
}

func (w *world) secret() *corev1.Secret {
	s, err := w.secrets.GetLive(w.t.Context(), secretKey)
	testkit.NoError(w.t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return s
}

// events returns the notes of all events, one a line.
func (w *world) events() string {
	var notes []string
	for e, err := range client.For[*eventsv1.Event](w.api).ListLive(w.t.Context(), client.ListOptions{}) {
		testkit.NoError(w.t, err)
		notes = append(notes, e.Regarding.Kind+" "+e.Regarding.Name+" "+e.Reason+" "+e.Note)
	}
	return strings.Join(notes, "\n")
}

// checkNoKeys looks for the keys of the Secret in the log, the events and the checks.
func (w *world) checkNoKeys(secrets ...*corev1.Secret) {
	said := w.logs.String() + w.events()
	for _, r := range w.replicas {
		if err := r.Check(w.t.Context()); err != nil {
			said += err.Error()
		}
	}
	for _, s := range secrets {
		for line := range strings.Lines(string(s.Data[keyKey])) {
			line = strings.TrimSpace(line)
			if len(line) > 20 && (strings.Contains(said, line[:20]) && !strings.HasPrefix(line, "-----") || strings.Contains(said, base64.StdEncoding.EncodeToString([]byte(line))[:20])) {
				w.t.Errorf("a log line, an event or a check contains a key:\n%s", said)
			}
		}
	}
}
