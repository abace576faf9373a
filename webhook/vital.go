// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		"no replica could become the leader, and no kubelet could report its health"},
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
func (v vital) forbids(a *admission) bool {
	return v.always || a.r.FailurePolicy != admissionregistrationv1.Ignore
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
func conditions(a *admission) []admissionregistrationv1.MatchCondition {
	all := slices.Clone(a.r.MatchConditions)
	for _, v := range vitals {
		if !v.forbids(a) || !slices.ContainsFunc(a.r.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
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
