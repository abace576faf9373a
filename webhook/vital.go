// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	{schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, false,
		"no kubelet could get or renew its certificate"},
	{schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}, false,
		"no node could become ready"},
	{schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}, false,
		"no Pod could take its volume to another node"},
	{schema.GroupResource{Resource: "persistentvolumes"}, false,
		"no volume could be attached"},
	{schema.GroupResource{Group: "networking.k8s.io", Resource: "ipaddresses"}, false,
		"no Service could get an address"},
	{schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}, false,
		"kubelets and servers could not check who calls them"},
	{schema.GroupResource{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}, false,
		"clients could not ask who they are"},
	{schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, false,
		"kubelets and servers could not check who may call them"},
	{schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}, false,
		"servers could not check who may call them"},
	{schema.GroupResource{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}, false,
		"clients could not ask what they may do"},
	{schema.GroupResource{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}, false,
		"clients could not ask what they may do"},
}

// written are the resources of objects that the API server itself writes: its default roles,
// without which it exits at its start, and its addresses in the Service kubernetes.
var written = []vital{
	{GroupResource: schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}},
	{GroupResource: schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}},
	{GroupResource: schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}},
	{GroupResource: schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"}},
	{GroupResource: schema.GroupResource{Resource: "endpoints"}},
	{GroupResource: schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}},
}

// apiServer is the user of the API server's own requests.
const apiServer = "system:apiserver"

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

// blocks reports whether the webhook, while it does not answer, rejects objects of one of the
// resources.
func blocks(a *admission, resources []vital) bool {
	return a.r.FailurePolicy != admissionregistrationv1.Ignore && slices.ContainsFunc(a.r.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.ContainsFunc(resources, func(v vital) bool {
			byName, byWildcard := v.matches(r.Rule)
			return byName || byWildcard
		})
	})
}

// blocksNodes reports whether the webhook, while it does not answer, rejects Pods of kube-system
// that use the network of their node. A new node needs them, for example for its network.
func blocksNodes(a *admission) bool {
	const all = "*"
	anyOf := func(list []string, names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
	}
	creates := slices.ContainsFunc(a.r.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return (slices.Contains(r.Operations, admissionregistrationv1.Create) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)) &&
			anyOf(r.APIGroups, "", all) && anyOf(r.Resources, "pods", "pods/*", all, "*/*") && (r.Scope == nil || *r.Scope != admissionregistrationv1.ClusterScope)
	})
	excluded := slices.ContainsFunc(a.r.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
		return strings.Contains(c.Expression, "hostNetwork")
	})
	return a.r.FailurePolicy != admissionregistrationv1.Ignore && creates && !excluded &&
		selects(a.r.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": metav1.NamespaceSystem}) && selects(a.r.ObjectSelector, nil)
}

// selects reports whether the selector of a registration has the labels. Validate has checked it.
func selects(s *metav1.LabelSelector, of labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return s == nil || err == nil && selector.Matches(of)
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
	if blocks(a, written) {
		all = append(all, admissionregistrationv1.MatchCondition{
			Name: "exclude-apiserver", Expression: fmt.Sprintf("request.userInfo.username != %q", apiServer),
		})
	}
	return all
}
