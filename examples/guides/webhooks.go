// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// newWebhooks has what docs/webhooks.md shows.
func newWebhooks(scheme *runtime.Scheme) *webhook.Webhooks {
	hooks := webhook.New(webhook.Options{
		Name:    "website-operator",
		Scheme:  scheme,
		Service: types.NamespacedName{Namespace: "website-system", Name: "website-operator-webhook"},
	})
	hooks.Validating(keep, webhook.Registration{
		Name: "keep.web.example.com",
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces", "configmaps"}},
		}},
		FailurePolicy: admissionregistrationv1.Ignore,
	})
	return hooks
}

// keep refuses to delete an object of any kind that has the annotation.
func keep(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.OldObject.Raw, &obj); err != nil {
		return nil, err
	}
	if obj.Annotations["web.example.com/keep"] == "true" {
		return nil, fmt.Errorf("the %s %s has the annotation web.example.com/keep; remove it first", r.Kind.Kind, r.Name)
	}
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

// newPolicy makes a policy, and a validator with the same rule to compare it with.
func newPolicy(scheme *runtime.Scheme) *webhook.Webhooks {
	hooks := webhook.New(webhook.Options{
		Name: "pages", Scheme: scheme, Service: types.NamespacedName{Namespace: "website-system", Name: "pages"},
	})
	hooks.Policy(noScripts(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-scripts.web.example.com"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        "no-scripts.web.example.com",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	check := func(_ context.Context, m *corev1.ConfigMap) error {
		if strings.Contains(m.Data["page"], "<script") {
			return errors.New("a page must not have scripts")
		}
		return nil
	}
	webhook.AddValidator(hooks, webhook.Validator[*corev1.ConfigMap]{
		Create: check,
		Update: func(ctx context.Context, _, m *corev1.ConfigMap) error { return check(ctx, m) },
	}, webhook.Registration{})
	return hooks
}

func noScripts() *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-scripts.web.example.com"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!has(object.data) || !('page' in object.data) || !object.data['page'].contains('<script')",
				Message:    "a page must not have scripts",
			}},
		},
	}
}

// operate runs webhooks in a manager.
func operate(cfg *rest.Config, scheme *runtime.Scheme, hooks *webhook.Webhooks) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{Name: "website-operator", Scheme: scheme})
	hooks.AddTo(mgr)
	return mgr
}

// generate is the program of a go:generate line.
func generate(hooks *webhook.Webhooks, file string) error {
	to, err := os.Create(file) //nolint:gosec // a constant in the go:generate line
	if err != nil {
		return err
	}
	return errors.Join(hooks.WriteYAML(to), to.Close())
}

// Certificates that something else writes.
func mounted() webhook.Options {
	return webhook.Options{
		Server: server.Options{CertDir: "/tmp/k8s-webhook-server/serving-certs"},
	}
}

// Times of the certificates.
func times() webhook.Options {
	return webhook.Options{
		Certificates: webhook.CertificateOptions{
			Skew:        5 * time.Minute,  // clocks differ by up to five minutes
			Propagation: 10 * time.Minute, // API servers may lag by ten minutes
		},
	}
}

// validator has the methods of controller-runtime's admission.Validator.
type validator interface {
	ValidateCreate(ctx context.Context, obj *corev1.ConfigMap) (warnings []string, err error)
	ValidateUpdate(ctx context.Context, old, obj *corev1.ConfigMap) (warnings []string, err error)
	ValidateDelete(ctx context.Context, obj *corev1.ConfigMap) (warnings []string, err error)
}

// moveValidator uses the methods of a validator of controller-runtime.
func moveValidator(hooks *webhook.Webhooks, v validator) {
	webhook.AddValidator(hooks, webhook.Validator[*corev1.ConfigMap]{
		Create: func(ctx context.Context, m *corev1.ConfigMap) error { return warned(ctx)(v.ValidateCreate(ctx, m)) },
		Update: func(ctx context.Context, old, m *corev1.ConfigMap) error {
			return warned(ctx)(v.ValidateUpdate(ctx, old, m))
		},
	}, webhook.Registration{})
}

// warned adds the warnings that a validator of controller-runtime returns.
func warned(ctx context.Context) func(warnings []string, err error) error {
	return func(warnings []string, err error) error {
		for _, w := range warnings {
			webhook.Warnf(ctx, "%s", w)
		}
		return err
	}
}
