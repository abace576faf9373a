// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// warnings collects what kubectl prints.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text
	w.text = nil
	return text
}

// rules are the rules of ConfigMaps with a label, so that nothing else of the cluster is affected.
func rules(operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
}

// install creates the webhook configurations of the test.
func install(t *testing.T, c kubernetes.Interface, address string, ca []byte) {
	t.Helper()
	to := func(name string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + "/" + name), CABundle: ca}
	}
	tests := &metav1.LabelSelector{MatchLabels: map[string]string{"test": "webhook"}}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "test"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: "default.configmaps.core", ClientConfig: to("default.configmaps.core"), Rules: rules("CREATE", "UPDATE"), ObjectSelector: tests,
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}}}
	validating := func(name string, policy admissionregistrationv1.FailurePolicyType) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: to(name), Rules: rules("CREATE", "UPDATE", "DELETE"), ObjectSelector: tests, FailurePolicy: &policy, TimeoutSeconds: new(int32(10)),
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}
	}
	all := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "test"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
		validating("validate.configmaps.core", admissionregistrationv1.Fail), validating("ignored.example.com", admissionregistrationv1.Ignore),
	}}
	testkit.NoError(t, testkit.Err(c.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), mutating, metav1.CreateOptions{})))
	testkit.NoError(t, testkit.Err(c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), all, metav1.CreateOptions{})))
}

// validateMap rejects, warns, panics or hangs as the data asks for.
func validateMap(ctx context.Context, o *corev1.ConfigMap) error {
	r := webhook.RequestFromContext(ctx)
	switch o.Data["ask"] {
	case "warn":
		webhook.Warnf(ctx, "%s by %s is old, dry run: %t", r.Name, r.UserInfo.Username, *r.DryRun)
	case "reject":
		return field.ErrorList{field.Invalid(field.NewPath("data", "ask"), "reject", "must be kind"), field.Required(field.NewPath("data", "more"), "")}.ToAggregate()
	case "forbid":
		return errors.New("maps are closed")
	case "panic":
		panic("asked for")
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func mapWith(name, ask string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "webhook"}}, Data: map[string]string{"ask": ask}}
}

// clusterHooks are webhooks for ConfigMaps on a free port.
func clusterHooks(t *testing.T) (hooks *webhook.Webhooks, address string, ca []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	dir, ca := certDir(t)
	address = l.Addr().String()
	hooks = webhook.New(webhook.Options{Name: "test", Scheme: scheme.Scheme, URL: "https://" + address, Server: server.Options{Listener: l, CertDir: dir}})
	webhook.AddDefaulter(hooks, func(_ context.Context, o *corev1.ConfigMap) error {
		o.Data["defaulted"] = "yes"
		return nil
	}, webhook.Registration{})
	webhook.AddValidator(hooks, webhook.Validator[*corev1.ConfigMap]{
		Create: validateMap, Update: func(ctx context.Context, _, o *corev1.ConfigMap) error { return validateMap(ctx, o) },
		Delete: func(_ context.Context, o *corev1.ConfigMap) error {
			if o.Data["keep"] == "yes" {
				return apierrors.NewBadRequest("it is kept")
			}
			return nil
		},
	}, webhook.Registration{})
	hooks.Validating(func(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		panic("it is ignored: " + r.Name)
	}, webhook.Registration{Name: "ignored.example.com", Rules: rules("CREATE")})
	return hooks, address, ca
}

// TestRealServer_CallsTheWebhooks on the real kube-apiserver.
func TestRealServer_CallsTheWebhooks(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		testkit.Equal(t, cluster.Stop(), nil)
	})
	hooks, address, ca := clusterHooks(t)
	m := manager.New(cluster.Config(), manager.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	hooks.AddTo(m)
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- m.Run(ctx) }()
	defer func() {
		stop()
		testkit.Equal(t, <-result, nil)
	}()
	testkit.NoError(t, m.WaitReady(t.Context()))
	said := &warnings{}
	cfg := rest.CopyConfig(cluster.Config())
	cfg.WarningHandlerWithContext = said
	direct := kubernetes.NewForConfigOrDie(cfg)
	install(t, direct, address, ca)
	maps := direct.CoreV1().ConfigMaps("default")
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for begun := false; !begun; { // until the API server uses the last webhook
		_, err := maps.Create(t.Context(), mapWith("probe", "forbid"), dry)
		begun = apierrors.IsForbidden(err)
		if err != nil && !begun {
			t.Fatal(err)
		}
	}
	made, err := maps.Create(t.Context(), mapWith("kept", "nothing"), metav1.CreateOptions{})
	testkit.NoError(t, err)
	testkit.Equal(t, made.Data["defaulted"], "yes")
	said.taken()
	_, err = maps.Create(t.Context(), mapWith("warned", "warn"), dry)
	if got := said.taken(); err != nil || !slices.Contains(got, "warned by envtest-admin is old, dry run: true") {
		t.Errorf("%v, the warnings are %q", err, got)
	}
	_, err = maps.Create(t.Context(), mapWith("a", "reject"), dry)
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Code != 422 || status.Status().Reason != metav1.StatusReasonInvalid ||
		status.Status().Message != `admission webhook "validate.configmaps.core" denied the request: ConfigMap "a" is invalid: [data.ask: Invalid value: "reject": must be kind, data.more: Required value]` ||
		!reflect.DeepEqual(status.Status().Details.Causes, []metav1.StatusCause{
			{Type: "FieldValueInvalid", Message: `Invalid value: "reject": must be kind`, Field: "data.ask"}, {Type: "FieldValueRequired", Message: "Required value", Field: "data.more"},
		}) {
		t.Errorf("%#v", err)
	}
	made.Data["keep"] = "yes"
	made, err = maps.Update(t.Context(), made, metav1.UpdateOptions{})
	testkit.Equal(t, err, nil)
	for ask, want := range map[string]string{
		"forbid": `admission webhook "validate.configmaps.core" denied the request: maps are closed`,
		"panic":  `failed calling webhook "validate.configmaps.core": failed to call webhook: an error on the server ("webhook validate.configmaps.core: the function has panicked; the log of the operator has its stack") has prevented the request from succeeding`,
		"hang":   `an error on the server ("webhook validate.configmaps.core: context deadline exceeded") has prevented the request from succeeding`,
	} {
		testkit.ErrorContains(t, testkit.Err(maps.Create(t.Context(), mapWith("b", ask), dry)), want, ask)
	}
	testkit.Equal(t, fmt.Sprint(maps.Delete(t.Context(), made.Name, metav1.DeleteOptions{})), `admission webhook "validate.configmaps.core" denied the request: it is kept`)
}

// secretWrites counts the requests that write a Secret.
type secretWrites struct {
	http.RoundTripper

	n *atomic.Int64
}

func (s secretWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/secrets") {
		s.n.Add(1)
	}
	return s.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets the client find its transport.
func (s secretWrites) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }

// TestRealServer_ThirtyReinstallsKeepAValidCertificate deletes the Secret and one configuration
// before each install. The other configuration stays, with the bundles of all CAs before.
func TestRealServer_ThirtyReinstallsKeepAValidCertificate(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		testkit.Equal(t, cluster.Stop(), nil)
	})
	var writes atomic.Int64
	cfg := rest.CopyConfig(cluster.Config())
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return secretWrites{rt, &writes} })
	direct := kubernetes.NewForConfigOrDie(cluster.Config())
	most := int64(0)
	for n := 1; n <= 30; n++ {
		before := writes.Load()
		reinstall(t, cfg, direct, fmt.Sprintf("install %d", n))
		most = max(most, writes.Load()-before)
	}
	testkit.AtMost(t, most, 20)
	t.Logf("at most %d writes of the Secret for an install", most)
}

// reinstall runs an operator until the API server calls its webhook, and uninstalls it.
func reinstall(t *testing.T, cfg *rest.Config, direct kubernetes.Interface, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	hooks := webhook.New(webhook.Options{
		Name: "test", Scheme: scheme.Scheme, URL: "https://" + l.Addr().String(), Server: server.Options{Listener: l, Linger: time.Millisecond}, Register: true,
		Certificates: webhook.CertificateOptions{Skew: 10 * time.Millisecond, Propagation: 10 * time.Millisecond},
	})
	tests := webhook.Registration{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"test": "webhook"}}}
	webhook.AddDefaulter(hooks, func(context.Context, *corev1.ConfigMap) error { return nil }, tests)
	webhook.AddValidator(hooks, webhook.Validator[*corev1.ConfigMap]{Create: func(context.Context, *corev1.ConfigMap) error { return errors.New(name) }}, tests)
	m := manager.New(cfg, manager.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	hooks.AddTo(m)
	running, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- m.Run(running) }()
	eventually(ctx, t, func() error {
		if err := hooks.Check(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		_, err := direct.CoreV1().ConfigMaps("default").Create(ctx, mapWith("a", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.HasSuffix(err.Error(), name) {
			return fmt.Errorf("%s: the webhook does not answer: %w", name, err)
		}
		return nil
	})
	stop()
	testkit.NoError(t, <-result)
	testkit.NoError(t, direct.CoreV1().Secrets("default").Delete(ctx, "test-webhook-ca", metav1.DeleteOptions{}))
	testkit.NoError(t, direct.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, "test", metav1.DeleteOptions{}))
}
