// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// vital is a resource that the cluster or the operator needs to start.
type vital struct {
	schema.GroupResource

	always bool // also with the failure policy Ignore
	why    string
}

// vitals are the resources that no webhook may stop. A namespaceSelector does not protect objects
// of the cluster scope.
var vitals = []vital{
	{schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, true,
		"replicas elect their leader with Leases, and kubelets report their health with them"},
	{schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, false,
		"the operator could not write the CA of its own conversion"},
	{schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}, false,
		"the API server could not install the operator's own kinds"},
	{schema.GroupResource{Resource: "nodes"}, false,
		"no node could join to run the operator"},
	{schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}, false,
		"kubelets and servers could not check who calls them"},
	{schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, false,
		"kubelets and servers could not check who may call them"},
}

// forbids reports whether the webhook must not get the resource.
func (v vital) forbids(d declared) bool {
	return v.always || d.FailurePolicy != admissionregistrationv1.Ignore
}

// matches reports whether a rule has the resource, by its name or by a wildcard.
func (v vital) matches(r admissionregistrationv1.Rule) (byName, byWildcard bool) {
	const all = "*"
	group := slices.Contains(r.APIGroups, v.Group)
	if !group && !slices.Contains(r.APIGroups, all) {
		return false, false
	}
	for _, resource := range r.Resources {
		switch resource, _, _ := strings.Cut(resource, "/"); resource {
		case v.Resource:
			byName = true
		case all:
			byWildcard = true
		}
	}
	return byName, byWildcard
}

// conditions returns the match conditions, with those that keep vital resources out.
func conditions(d declared) []admissionregistrationv1.MatchCondition {
	all := slices.Clone(d.MatchConditions)
	for _, v := range vitals {
		if !v.forbids(d) || !slices.ContainsFunc(d.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			_, byWildcard := v.matches(r.Rule)
			return byWildcard
		}) {
			continue
		}
		all = append(all, admissionregistrationv1.MatchCondition{
			Name:       "exclude-" + v.Resource,
			Expression: fmt.Sprintf("!(request.resource.group == %q && request.resource.resource == %q)", v.Group, v.Resource),
		})
	}
	return all
}

// configurations are the kinds that the API server admits without webhooks.
var configurations = []string{
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies",
	"validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
}

// validate names each mistake of a webhook.
func (d declared) validate() error {
	var wrong []error
	mistake := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("webhook %q: "+format, append([]any{d.Name}, args...)...))
	}
	if problems := validation.IsDNS1123Subdomain(d.Name); len(problems) > 0 || strings.Count(d.Name, ".") < 2 {
		mistake("Registration.Name is not a domain name with three parts or more; use one such as validate.websites.web.example.com")
	}
	if d.Timeout != 0 && (d.Timeout < time.Second || d.Timeout > 30*time.Second || d.Timeout%time.Second != 0) {
		mistake("Registration.Timeout is %s; use whole seconds from 1s to 30s", d.Timeout)
	}
	switch d.FailurePolicy {
	case "", admissionregistrationv1.Fail, admissionregistrationv1.Ignore:
	default:
		mistake("Registration.FailurePolicy is %q; use Fail or Ignore", d.FailurePolicy)
	}
	switch d.MatchPolicy {
	case "", admissionregistrationv1.Exact, admissionregistrationv1.Equivalent:
	default:
		mistake("Registration.MatchPolicy is %q; use Exact or Equivalent", d.MatchPolicy)
	}
	switch d.Reinvocation {
	case "", admissionregistrationv1.NeverReinvocationPolicy:
	case admissionregistrationv1.IfNeededReinvocationPolicy:
		if !d.mutating {
			mistake("Registration.Reinvocation is IfNeeded; only mutating webhooks are called again")
		}
	default:
		mistake("Registration.Reinvocation is %q; use Never or IfNeeded", d.Reinvocation)
	}
	for field, s := range map[string]*metav1.LabelSelector{"NamespaceSelector": d.NamespaceSelector, "ObjectSelector": d.ObjectSelector} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			mistake("Registration.%s: %w", field, err)
		}
	}
	if len(d.Rules) == 0 {
		mistake("Registration.Rules is empty; name the operations and resources")
	}
	for _, r := range d.Rules {
		if err := d.validateRule(r); err != nil {
			mistake("Registration.Rules: %w", err)
		}
	}
	return errors.Join(wrong...)
}

func (d declared) validateRule(r admissionregistrationv1.RuleWithOperations) error {
	if len(r.Operations) == 0 || len(r.APIGroups) == 0 || len(r.APIVersions) == 0 || len(r.Resources) == 0 {
		return errors.New("a rule has no Operations, APIGroups, APIVersions or Resources; fill all four, the core group is \"\"")
	}
	for _, v := range vitals {
		if byName, _ := v.matches(r.Rule); byName && v.forbids(d) {
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

// validateRegistrations returns the mistakes of all webhooks.
func validateRegistrations(all []declared) error {
	var wrong []error
	seen := map[string]bool{}
	for _, d := range all {
		wrong = append(wrong, d.validate())
		if seen[d.Name] {
			wrong = append(wrong, fmt.Errorf("webhook %q: two webhooks have this name; set Registration.Name to one of its own", d.Name))
		}
		seen[d.Name] = true
	}
	return errors.Join(wrong...)
}
