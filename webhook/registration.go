// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (a *admission) validate() error {
	var wrong []error
	mistake := func(err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("webhook %q: %w", a.name, err))
		}
	}
	if problems := validation.IsDNS1123Subdomain(a.name); len(problems) > 0 || strings.Count(a.name, ".") < 2 {
		mistake(errors.New("Registration.Name is not a domain name with three parts or more; use one such as validate.websites.web.example.com"))
	}
	if a.r.Timeout != 0 && (a.r.Timeout < time.Second || a.r.Timeout > 30*time.Second || a.r.Timeout%time.Second != 0) {
		mistake(fmt.Errorf("Registration.Timeout is %s; use whole seconds from 1s to 30s", a.r.Timeout))
	}
	mistake(oneOf("FailurePolicy", a.r.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore))
	mistake(oneOf("MatchPolicy", a.r.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact))
	mistake(oneOf("Reinvocation", a.r.Reinvocation, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy))
	if a.r.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy && !a.mutating {
		mistake(errors.New("Registration.Reinvocation is IfNeeded; the API server calls only mutating webhooks again"))
	}
	_, err := metav1.LabelSelectorAsSelector(a.r.NamespaceSelector)
	mistake(wrongField("NamespaceSelector", err))
	_, err = metav1.LabelSelectorAsSelector(a.r.ObjectSelector)
	mistake(wrongField("ObjectSelector", err))
	if len(a.r.Rules) == 0 {
		mistake(errors.New("Registration.Rules is empty; name the operations and resources"))
	}
	for _, r := range a.r.Rules {
		mistake(wrongField("Rules", a.validateRule(r)))
	}
	return errors.Join(wrong...)
}

func wrongField(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("Registration.%s: %w", name, err)
}

func oneOf[T ~string](name string, value, first, second T) error {
	switch cmp.Or(value, first) {
	case first, second:
		return nil
	}
	return fmt.Errorf("Registration.%s is %q; use %s or %s", name, value, first, second)
}

func (a *admission) validateRule(r admissionregistrationv1.RuleWithOperations) error {
	if len(r.Operations) == 0 || len(r.APIGroups) == 0 || len(r.APIVersions) == 0 || len(r.Resources) == 0 {
		return errors.New("a rule has no Operations, APIGroups, APIVersions or Resources; fill all four, the core group is \"\"")
	}
	for _, v := range vitals {
		if byName, _ := v.matches(r.Rule); byName && v.forbids(a) {
			remedy := "remove the rule"
			if !v.always {
				remedy = "remove the rule, set FailurePolicy to Ignore, or use Policy"
			}
			return fmt.Errorf("a rule has %s, which could lock out the operator: while the webhook does not answer, %s; %s", v.GroupResource, v.why, remedy)
		}
	}
	if slices.Contains(r.APIGroups, admissionregistrationv1.GroupName) {
		for _, resource := range configurations {
			if slices.Contains(r.Resources, resource) {
				return fmt.Errorf("a rule has %s, for which the API server calls no webhooks; remove the rule", resource)
			}
		}
	}
	return nil
}

// configurations are the kinds that the API server admits without webhooks.
var configurations = []string{
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies",
	"validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
}
