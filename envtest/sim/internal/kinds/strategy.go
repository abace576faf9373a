// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// strategy holds what differs between kinds when an object is written.
type strategy struct {
	CreateOnUpdate bool // PUT creates a missing object
	Conditional    bool // PUT needs a resourceVersion
	Returned       bool // DELETE answers the object instead of a Status
	Collection     bool // DELETE works on a collection
	Status         bool // there is a status subresource; else every write may set the status
	Generation     generation
	Scale          *scalePaths // nil without a scale subresource
}

// generation is the rule by which writes change metadata.generation.
type generation int

const (
	NoGeneration         generation = iota
	SpecGeneration                  // at changes of spec
	AnnotationGeneration            // at changes of spec and annotations
	ContentGeneration               // at changes of everything outside metadata
	LabelGeneration                 // also at changes of labels
)

func customStrategy() strategy {
	return strategy{Collection: true, Conditional: true, Status: true, Generation: ContentGeneration}
}

func group(name string, resources ...string) []schema.GroupResource {
	var list []schema.GroupResource
	for _, r := range resources {
		list = append(list, schema.GroupResource{Group: name, Resource: r})
	}
	return list
}

func builtInStrategy(of schema.GroupResource) strategy {
	st := strategy{Collection: of != schema.GroupResource{Resource: "namespaces"}}
	for _, rule := range builtInRules {
		for _, r := range rule.resources {
			if r == of {
				rule.set(&st)
			}
		}
	}
	return st
}

// builtInRules lists the built-in kinds that differ from the zero strategy, as in the strategies of
// Kubernetes v1.37.
var builtInRules = []struct {
	resources []schema.GroupResource
	set       func(*strategy)
}{
	{group("", "services", "endpoints", "events", "limitranges"), createsOnUpdate},
	{group("coordination.k8s.io", "leases", "leasecandidates"), createsOnUpdate},
	{group("events.k8s.io", "events"), createsOnUpdate},
	{group("node.k8s.io", "runtimeclasses"), createsOnUpdate},
	{group("rbac.authorization.k8s.io", "roles", "rolebindings", "clusterroles", "clusterrolebindings"), createsOnUpdate},

	{group("coordination.k8s.io", "leases", "leasecandidates"), isConditional},
	{group("admissionregistration.k8s.io", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations"), isConditional},
	{group("certificates.k8s.io", "clustertrustbundles", "podcertificaterequests"), isConditional},
	{group("node.k8s.io", "runtimeclasses"), isConditional},
	{group("policy", "poddisruptionbudgets"), isConditional},
	{group("apiextensions.k8s.io", "customresourcedefinitions"), isConditional},
	{group("apiregistration.k8s.io", "apiservices"), isConditional},
	{group("storage.k8s.io", "csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"), isConditional},
	{group("storagemigration.k8s.io", "storageversionmigrations"), isConditional},

	{group("", "namespaces", "persistentvolumes", "persistentvolumeclaims", "pods", "podtemplates", "resourcequotas", "serviceaccounts", "services"), isReturned},
	{group("storage.k8s.io", "csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses"), isReturned},
	{group("resource.k8s.io", "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"), isReturned},

	{group("apiextensions.k8s.io", "customresourcedefinitions"), generationAt(SpecGeneration)},
	{group("apps", "deployments"), generationAt(AnnotationGeneration)},
	{group("apps", "daemonsets", "replicasets", "statefulsets"), generationAt(SpecGeneration)},
	{group("batch", "cronjobs", "jobs"), generationAt(SpecGeneration)},
	{group("autoscaling", "horizontalpodautoscalers"), generationAt(SpecGeneration)},
	{group("", "pods", "replicationcontrollers"), generationAt(SpecGeneration)},
	{group("", "podtemplates"), generationAt(ContentGeneration)},
	{group("networking.k8s.io", "ingresses", "ingressclasses", "networkpolicies"), generationAt(SpecGeneration)},
	{group("policy", "poddisruptionbudgets"), generationAt(SpecGeneration)},
	{group("discovery.k8s.io", "endpointslices"), generationAt(LabelGeneration)},
	{group("admissionregistration.k8s.io", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings"), generationAt(SpecGeneration)},
	{group("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"), generationAt(ContentGeneration)},
	{group("flowcontrol.apiserver.k8s.io", "flowschemas", "prioritylevelconfigurations"), generationAt(SpecGeneration)},
	{group("scheduling.k8s.io", "priorityclasses"), generationAt(ContentGeneration)},
	{group("resource.k8s.io", "deviceclasses", "devicetaintrules", "resourceslices"), generationAt(SpecGeneration)},

	{group("apiextensions.k8s.io", "customresourcedefinitions"), hasStatus},
	{group("apiregistration.k8s.io", "apiservices"), hasStatus},
	{group("", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "replicationcontrollers", "resourcequotas", "services"), hasStatus},
	{group("apps", "daemonsets", "deployments", "replicasets", "statefulsets"), hasStatus},
	{group("autoscaling", "horizontalpodautoscalers"), hasStatus},
	{group("batch", "cronjobs", "jobs"), hasStatus},
	{group("certificates.k8s.io", "certificatesigningrequests", "podcertificaterequests"), hasStatus},
	{group("flowcontrol.apiserver.k8s.io", "flowschemas", "prioritylevelconfigurations"), hasStatus},
	{group("networking.k8s.io", "ingresses", "servicecidrs"), hasStatus},
	{group("policy", "poddisruptionbudgets"), hasStatus},
	{group("resource.k8s.io", "devicetaintrules", "resourceclaims"), hasStatus},
	{group("storage.k8s.io", "csinodes", "volumeattachments"), hasStatus},
	{group("storagemigration.k8s.io", "storageversionmigrations"), hasStatus},
	{group("admissionregistration.k8s.io", "validatingadmissionpolicies"), hasStatus},

	{group("apps", "deployments", "replicasets", "statefulsets"), isScalable},
	{group("", "replicationcontrollers"), isScalable},
}

func createsOnUpdate(st *strategy) { st.CreateOnUpdate = true }
func isConditional(st *strategy)   { st.Conditional = true }
func isReturned(st *strategy)      { st.Returned = true }
func hasStatus(st *strategy)       { st.Status = true }
func isScalable(st *strategy)      { st.Scale = &scalePaths{} }

func generationAt(g generation) func(*strategy) {
	return func(st *strategy) { st.Generation = g }
}

// scalePaths are the fields of a kind with a scale subresource, such as ".spec.replicas". The
// built-in kinds have a zero ScalePaths.
type scalePaths struct{ SpecReplicas, StatusReplicas, LabelSelector string }

// Steps splits a JSON path into the names of fields.
func Steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// Fields returns the steps to the replicas in spec and status.
func (p scalePaths) Fields() (spec, status []string) {
	if p.SpecReplicas == "" {
		return []string{"spec", "replicas"}, []string{"status", "replicas"}
	}
	return Steps(p.SpecReplicas), Steps(p.StatusReplicas)
}
