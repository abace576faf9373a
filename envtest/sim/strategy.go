// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "k8s.io/apimachinery/pkg/runtime/schema"

// strategy holds what differs between kinds when an object is written.
type strategy struct {
	createOnUpdate bool // PUT creates a missing object
	conditional    bool // PUT needs a resourceVersion
	returned       bool // DELETE answers the object instead of a Status
	collection     bool // DELETE works on a collection
	status         bool // there is a status subresource; else every write may set the status
	generation     generation
	scale          *scalePaths // nil without a scale subresource
}

// generation is the rule by which writes change metadata.generation.
type generation int

const (
	noGeneration         generation = iota
	specGeneration                  // at changes of spec
	annotationGeneration            // at changes of spec and annotations
	contentGeneration               // at changes of everything outside metadata
	labelGeneration                 // also at changes of labels
)

func customStrategy() strategy {
	return strategy{collection: true, conditional: true, status: true, generation: contentGeneration}
}

func group(name string, resources ...string) []schema.GroupResource {
	var list []schema.GroupResource
	for _, r := range resources {
		list = append(list, schema.GroupResource{Group: name, Resource: r})
	}
	return list
}

func builtInStrategy(of schema.GroupResource) strategy {
	st := strategy{collection: of != schema.GroupResource{Resource: "namespaces"}}
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

	{group("apiextensions.k8s.io", "customresourcedefinitions"), generationAt(specGeneration)},
	{group("apps", "deployments"), generationAt(annotationGeneration)},
	{group("apps", "daemonsets", "replicasets", "statefulsets"), generationAt(specGeneration)},
	{group("batch", "cronjobs", "jobs"), generationAt(specGeneration)},
	{group("autoscaling", "horizontalpodautoscalers"), generationAt(specGeneration)},
	{group("", "pods", "replicationcontrollers"), generationAt(specGeneration)},
	{group("", "podtemplates"), generationAt(contentGeneration)},
	{group("networking.k8s.io", "ingresses", "ingressclasses", "networkpolicies"), generationAt(specGeneration)},
	{group("policy", "poddisruptionbudgets"), generationAt(specGeneration)},
	{group("discovery.k8s.io", "endpointslices"), generationAt(labelGeneration)},
	{group("admissionregistration.k8s.io", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings"), generationAt(specGeneration)},
	{group("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"), generationAt(contentGeneration)},
	{group("flowcontrol.apiserver.k8s.io", "flowschemas", "prioritylevelconfigurations"), generationAt(specGeneration)},
	{group("scheduling.k8s.io", "priorityclasses"), generationAt(contentGeneration)},
	{group("resource.k8s.io", "deviceclasses", "devicetaintrules", "resourceslices"), generationAt(specGeneration)},

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

func createsOnUpdate(st *strategy) { st.createOnUpdate = true }
func isConditional(st *strategy)   { st.conditional = true }
func isReturned(st *strategy)      { st.returned = true }
func hasStatus(st *strategy)       { st.status = true }
func isScalable(st *strategy)      { st.scale = &scalePaths{} }

func generationAt(g generation) func(*strategy) {
	return func(st *strategy) { st.generation = g }
}
