// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func defaultHooks(obj runtime.Object) {
	switch o := obj.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			defaultValidatingWebhook(&o.Webhooks[i])
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			DefaultMutatingWebhook(&o.Webhooks[i])
		}
	}
}

func defaultValidatingWebhook(h *admissionregistrationv1.ValidatingWebhook) {
	pointed(&h.FailurePolicy, admissionregistrationv1.Fail)
	pointed(&h.MatchPolicy, admissionregistrationv1.Equivalent)
	pointed(&h.NamespaceSelector, metav1.LabelSelector{})
	pointed(&h.ObjectSelector, metav1.LabelSelector{})
	pointed(&h.TimeoutSeconds, 10)
	defaultRules(h.Rules, h.ClientConfig.Service)
}

// DefaultMutatingWebhook sets the defaults of a webhook.
func DefaultMutatingWebhook(h *admissionregistrationv1.MutatingWebhook) {
	pointed(&h.FailurePolicy, admissionregistrationv1.Fail)
	pointed(&h.MatchPolicy, admissionregistrationv1.Equivalent)
	pointed(&h.NamespaceSelector, metav1.LabelSelector{})
	pointed(&h.ObjectSelector, metav1.LabelSelector{})
	pointed(&h.TimeoutSeconds, 10)
	pointed(&h.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	defaultRules(h.Rules, h.ClientConfig.Service)
}

func defaultRules(rules []admissionregistrationv1.RuleWithOperations, service *admissionregistrationv1.ServiceReference) {
	for i := range rules {
		pointed(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
	if service != nil {
		pointed(&service.Port, 443)
	}
}
