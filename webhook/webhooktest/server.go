// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/webhook"
)

// server is an API server with the webhooks and policies to compare.
type server struct {
	cfg            *rest.Config
	client         *client.Client
	configurations []*unstructured.Unstructured // of the webhooks
	policies       []*unstructured.Unstructured // with their bindings
	listener       *httptest.Server             // answers for the webhooks
	ca             []byte
	stored         map[*unstructured.Unstructured]*unstructured.Unstructured // the examples
}

func newServer(cfg *rest.Config, hooks *webhook.Webhooks, objects []*unstructured.Unstructured) (*server, error) {
	s := &server{stored: map[*unstructured.Unstructured]*unstructured.Unstructured{}}
	for _, obj := range objects {
		switch {
		case strings.Contains(obj.GetKind(), "AdmissionPolicy"):
			s.policies = append(s.policies, obj)
		case strings.HasSuffix(obj.GetKind(), "WebhookConfiguration"):
			obj.SetName(obj.GetName() + "-same-as-policy")
			s.configurations = append(s.configurations, throughService(obj))
		}
	}
	switch {
	case len(s.policies) == 0:
		return nil, errors.New("the webhooks have no policy; add it and its binding with Policy")
	case len(s.configurations) == 0:
		return nil, errors.New("there is no webhook for admission; add one with Default or Validate")
	case cfg == nil:
		return nil, errors.New("the rest.Config is nil; use that of an envtest.Cluster")
	}
	certificate, ca, err := envtest.ServingCertificate()
	if err != nil {
		return nil, err
	}
	s.cfg = rest.CopyConfig(cfg)
	s.cfg.QPS, s.cfg.WarningHandler = -1, rest.NoWarnings{}
	if s.client, err = client.New(s.cfg, client.Options{FieldOwner: "webhooktest"}); err != nil {
		return nil, err
	}
	s.ca = ca
	s.listener = httptest.NewUnstartedServer(hooks.Handler(nil))
	s.listener.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	s.listener.StartTLS()
	return s, nil
}

// throughService makes all webhooks of a configuration have a service, which
// envtest.InstallWebhooks replaces.
func throughService(configuration *unstructured.Unstructured) *unstructured.Unstructured {
	webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, w := range webhooks {
		fields, _ := w.(map[string]any)
		name, _ := fields["name"].(string)
		fields["clientConfig"] = map[string]any{"service": map[string]any{"namespace": "default", "name": "webhooktest", "path": "/" + name}}
	}
	configuration.Object["webhooks"] = webhooks
	return configuration
}

func (s *server) close() {
	s.listener.Close()
	s.client.Close()
}

func (s *server) of(kind schema.GroupVersionKind) *client.Handle[*unstructured.Unstructured] {
	return client.ForKind[*unstructured.Unstructured](s.client, kind)
}

// store creates the examples, to update and delete them in dry runs.
func (s *server) store(ctx context.Context, examples []*unstructured.Unstructured) error {
	for i, e := range examples {
		got, err := s.of(e.GroupVersionKind()).Create(ctx, e)
		if err != nil {
			return fmt.Errorf("PolicyOptions.Examples[%d]: the server does not accept it, without the webhooks and the policies: %w", i, err)
		}
		s.stored[e] = got
	}
	return nil
}

// forget deletes the examples, also after the end of ctx.
func (s *server) forget(ctx context.Context) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	var wrong []error
	for e := range s.stored {
		err := s.of(e.GroupVersionKind()).Delete(ctx, keyOf(e))
		if err != nil && !apierrors.IsNotFound(err) {
			wrong = append(wrong, fmt.Errorf("delete the example %q: %w", e.GetName(), err))
		}
	}
	return errors.Join(wrong...)
}

// afterwards returns a context for cleaning up.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

func keyOf(u *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
}

// differences sends samples to the server alone, to the webhooks and to the policies. effect
// reports whether the webhooks or the policies reject or change something.
func (s *server) differences(ctx context.Context, samples []sample) (found []difference, effect bool, err error) {
	all, err := s.answers(ctx, samples)
	if err != nil {
		return nil, false, err
	}
	var valid []sample
	var alone []answer
	for i, a := range all {
		if a.denied == "" {
			valid, alone = append(valid, samples[i]), append(alone, a)
		}
	}
	byWebhook, err := s.ofWebhooks(ctx, valid)
	if err != nil {
		return nil, false, err
	}
	byPolicy, err := s.ofPolicies(ctx, valid)
	if err != nil {
		return nil, false, err
	}
	for i, one := range valid {
		if d := differing(one, byWebhook[i], byPolicy[i]); d != nil {
			found = append(found, *d)
		}
		effect = effect || differing(one, alone[i], byWebhook[i]) != nil
	}
	return found, effect || len(found) > 0, nil
}

func (s *server) ofWebhooks(ctx context.Context, samples []sample) (all []answer, err error) {
	w := envtest.Webhooks{Address: s.listener.Listener.Addr().String(), CABundle: s.ca}
	for _, c := range s.configurations {
		w.Objects = append(w.Objects, runtime.Object(c))
	}
	remove, err := envtest.InstallWebhooks(ctx, s.cfg, w)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := afterwards(ctx)
		defer cancel()
		err = errors.Join(err, remove(ctx))
	}()
	return s.answers(ctx, samples)
}

func (s *server) ofPolicies(ctx context.Context, samples []sample) (all []answer, err error) {
	p := &installed{server: s}
	defer func() {
		ctx, cancel := afterwards(ctx)
		defer cancel()
		err = errors.Join(err, p.remove(ctx))
	}()
	if err := p.install(ctx, s.policies); err != nil {
		return nil, err
	}
	return s.answers(ctx, samples)
}

func (s *server) answers(ctx context.Context, samples []sample) (all []answer, err error) {
	for _, one := range samples {
		got, err := s.send(ctx, one)
		for err != nil && strings.Contains(err.Error(), unknownYet) && pause(ctx) {
			got, err = s.send(ctx, one)
		}
		a := answer{object: contentOf(got)}
		if err != nil {
			if code := codeOf(err); code < 400 || code >= 500 || code == http.StatusTooManyRequests {
				return nil, fmt.Errorf("%s: the request fails: %w", one, err)
			}
			a = answer{denied: err.Error()}
		}
		all = append(all, a)
	}
	return all, nil
}

// unknownYet is in the answer while MutatingAdmissionPolicies do not know the schema of a new CRD.
const unknownYet = "There can be a delay between when CustomResourceDefinitions are created and when they are available"

// pause waits a moment. It reports false at the end of ctx.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(betweenTries)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func codeOf(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

func (s *server) send(ctx context.Context, one sample) (*unstructured.Unstructured, error) {
	h := s.of(one.example.GroupVersionKind())
	u := (&unstructured.Unstructured{Object: one.object}).DeepCopy()
	switch stored := s.stored[one.example]; one.operation {
	case creating:
		u.SetName(u.GetName() + "-new") // the example itself is stored
		return h.Create(ctx, u, client.DryRun())
	case updating:
		u.SetName(stored.GetName())
		u.SetUID(stored.GetUID())
		u.SetResourceVersion(stored.GetResourceVersion())
		u.SetFinalizers(stored.GetFinalizers())
		return h.Update(ctx, u, client.DryRun())
	default:
		return nil, h.Delete(ctx, keyOf(one.example), client.DryRun())
	}
}

// contentOf returns an object without what differs in each request.
func contentOf(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	return u.Object
}
