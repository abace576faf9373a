// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/webhook"
	"github.com/setpoint-dev/setpoint/webhook/webhooktest"
)

// installed returns a sim that calls the webhooks.
func installed(t *testing.T, hooks *webhook.Webhooks) *rest.Config {
	t.Helper()
	server := sim.New(t, scheme.Scheme)
	server.UseWebhooks(hooks.Handler(nil))
	manifests, err := hooks.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	var configurations []runtime.Object
	for _, m := range manifests {
		if strings.HasSuffix(m.GetKind(), "WebhookConfiguration") {
			configurations = append(configurations, m)
		}
	}
	_, ca, err := envtest.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	w := envtest.Webhooks{Objects: configurations, Address: "operator.test:443", CABundle: ca}
	if _, err := envtest.InstallWebhooks(t.Context(), server.Config(), w); err != nil {
		t.Fatal(err)
	}
	return server.Config()
}

func newClient(t *testing.T, cfg *rest.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestWebhooks_KeepRefusesADeletion(t *testing.T) {
	hooks := newWebhooks(scheme.Scheme)
	cfg := installed(t, hooks)
	operate(cfg, scheme.Scheme, hooks) // it would listen on port 9443
	c := newClient(t, cfg)
	maps := client.For[*corev1.ConfigMap](c)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept", Annotations: map[string]string{"web.example.com/keep": "true"}}}
	if _, err := maps.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "kept"}
	if err := maps.Delete(t.Context(), key); err == nil || !strings.Contains(err.Error(), "the ConfigMap kept has the annotation web.example.com/keep; remove it first") {
		t.Errorf("the deletion returned %v", err)
	}
	if _, err := maps.Patch(t.Context(), key, types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`)); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
}

func TestWebhooks_Generate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "webhooks.yaml")
	if err := generate(newWebhooks(scheme.Scheme), file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind: ValidatingWebhookConfiguration", "name: keep.web.example.com"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// A policy needs a real API server.
func TestPolicy_IsTheSameAsTheValidator(t *testing.T) {
	cfg := startCluster(t).Config()
	page := func(name, text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Data:       map[string]string{"page": text},
		}
	}
	webhooktest.SameAsPolicy(t, cfg, newPolicy(scheme.Scheme), webhooktest.PolicyOptions{
		Examples: []client.Object{page("good", "<h1>Hello</h1>"), page("bad", "<script>")},
	})
}

// old is a validator as one writes it for controller-runtime.
type old struct{ validator }

func (old) ValidateCreate(_ context.Context, m *corev1.ConfigMap) ([]string, error) {
	if m.Data == nil {
		return []string{"it is empty"}, errors.New("it has no data")
	}
	return nil, nil
}

func TestWebhooks_Moving(t *testing.T) {
	hooks := webhook.New(webhook.Options{Name: "moved", Scheme: scheme.Scheme, Service: types.NamespacedName{Namespace: "a", Name: "b"}})
	moveValidator(hooks, old{})
	c := newClient(t, installed(t, hooks))
	empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "empty"}}
	if _, err := client.For[*corev1.ConfigMap](c).Create(t.Context(), empty); err == nil || !strings.Contains(err.Error(), "denied the request: it has no data") {
		t.Errorf("the creation returned %v", err)
	}
}

func TestWebhooks_Options(t *testing.T) {
	for _, o := range []webhook.Options{mounted(), times()} {
		o.Name, o.Scheme, o.Service = "a", scheme.Scheme, types.NamespacedName{Namespace: "a", Name: "b"}
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
}
