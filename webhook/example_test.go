// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/webhook"
)

// A default and a validation for ConfigMaps. AddTo serves them, and Manifests
// returns the objects that register them.
func Example() {
	hooks := webhook.New(webhook.Options{
		Name: "website-operator", Scheme: scheme.Scheme,
		Service: types.NamespacedName{Namespace: "website-system", Name: "website-webhook"},
	})
	webhook.AddDefaulter(hooks, func(_ context.Context, m *corev1.ConfigMap) error {
		if m.Data == nil {
			m.Data = map[string]string{"page": "<h1>Hello</h1>"}
		}
		return nil
	}, webhook.Registration{})
	webhook.AddValidator(hooks, webhook.Validator[*corev1.ConfigMap]{
		Create: func(_ context.Context, m *corev1.ConfigMap) error {
			if m.Data["page"] == "" {
				return errors.New("the page is empty")
			}
			return nil
		},
	}, webhook.Registration{})
	manifests, err := hooks.Manifests()
	for _, m := range manifests {
		fmt.Println(m.GetKind(), m.GetName())
	}
	fmt.Println(err)
	// Output:
	// MutatingWebhookConfiguration website-operator
	// ValidatingWebhookConfiguration website-operator
	// <nil>
}
