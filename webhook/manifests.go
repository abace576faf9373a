// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/client"
)

// Manifests returns the objects that make the API server call the webhooks, in a fixed order:
//
//   - a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration named Options.Name, if
//     there are such webhooks
//   - for each converted kind, a CustomResourceDefinition with only its name and spec.conversion,
//     for a server-side apply to the installed one
//   - the objects of Policy.
//
// They have no caBundle: package webhook/internal/certs or cert-manager writes it. Manifests
// returns the error of Validate.
//
// Each webhook ignores the namespace of Options.Service, so its Pods, Secrets and Services can be
// created while no webhook answers. Other namespaces, such as kube-system, are included: exclude
// them with Registration.NamespaceSelector. Without Options.Service, no namespace is excluded.
//
// No webhook gets Leases. Unless its failure policy is Ignore, no webhook gets the kinds that a
// node, the API server or the operator need to start:
//
//   - Nodes, CertificateSigningRequests, CSINodes, VolumeAttachments and PersistentVolumes
//   - CustomResourceDefinitions, APIServices and IPAddresses
//   - reviews: TokenReviews, SubjectAccessReviews, LocalSubjectAccessReviews, SelfSubjectReviews,
//     SelfSubjectAccessReviews and SelfSubjectRulesReviews.
//
// A rule that names one of these is a mistake, which Validate returns. For a rule with "*" the
// webhook has match conditions that exclude them. A webhook for roles, Endpoints or EndpointSlices
// has one that excludes the API server's own requests: the API server writes its default roles when
// it starts, and exits if it cannot.
//
// A new node needs Pods of kube-system, such as its network, which use hostNetwork. A webhook that
// gets new Pods and does not answer rejects them, unless its failure policy is Ignore. Exclude
// kube-system by Registration.NamespaceSelector, or these Pods by a match condition:
//
//	object == null || !has(object.spec.hostNetwork) || !object.spec.hostNetwork
func (w *Webhooks) Manifests() ([]*unstructured.Unstructured, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	return w.manifests(), nil
}

// WriteYAML writes Manifests as one YAML file with several documents, for go generate. The same
// webhooks always give the same text.
func (w *Webhooks) WriteYAML(to io.Writer) error {
	objects, err := w.Manifests()
	if err != nil {
		return err
	}
	for _, obj := range objects {
		text, err := yaml.Marshal(obj.Object)
		if err != nil {
			return fmt.Errorf("webhook: write %s %s as YAML: %w", obj.GetKind(), obj.GetName(), err)
		}
		if _, err := fmt.Fprintf(to, "---\n%s", text); err != nil {
			return fmt.Errorf("webhook: write the manifests: %w", err)
		}
	}
	return nil
}

func (w *Webhooks) declared() []*admission {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Clone(w.admissions)
}

func (w *Webhooks) manifests() (objects []*unstructured.Unstructured) {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	for _, a := range w.declared() {
		if a.mutating {
			mutating.Webhooks = append(mutating.Webhooks, w.mutatingWebhook(a))
		} else {
			validating.Webhooks = append(validating.Webhooks, w.validatingWebhook(a))
		}
	}
	var typed []client.Object
	if len(mutating.Webhooks) > 0 {
		typed = append(typed, named(mutating, mutatingKind, w.o.Name))
	}
	if len(validating.Webhooks) > 0 {
		typed = append(typed, named(validating, validatingKind, w.o.Name))
	}
	for _, obj := range typed {
		u, _ := asUnstructured(obj) // these types can be written as JSON
		objects = append(objects, u)
	}
	for _, kind := range w.converted() {
		objects = append(objects, w.conversionOf(kind))
	}
	return append(objects, w.shipped()...)
}

var (
	mutatingKind   = admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")
	validatingKind = admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	crdKind        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
)

func named(obj client.Object, kind schema.GroupVersionKind, name string) client.Object {
	obj.GetObjectKind().SetGroupVersionKind(kind)
	obj.SetName(name)
	return obj
}

func asUnstructured(obj client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("webhook: %s %s cannot be written as JSON: %w", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), err)
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

func (w *Webhooks) mutatingWebhook(a *admission) admissionregistrationv1.MutatingWebhook {
	v := w.validatingWebhook(a)
	reinvocation := cmp.Or(a.r.Reinvocation, admissionregistrationv1.NeverReinvocationPolicy)
	return admissionregistrationv1.MutatingWebhook{
		Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules, FailurePolicy: v.FailurePolicy, MatchPolicy: v.MatchPolicy,
		NamespaceSelector: v.NamespaceSelector, ObjectSelector: v.ObjectSelector, SideEffects: v.SideEffects,
		TimeoutSeconds: v.TimeoutSeconds, AdmissionReviewVersions: v.AdmissionReviewVersions,
		MatchConditions: v.MatchConditions, ReinvocationPolicy: &reinvocation,
	}
}

func (w *Webhooks) validatingWebhook(a *admission) admissionregistrationv1.ValidatingWebhook {
	failure := cmp.Or(a.r.FailurePolicy, admissionregistrationv1.Fail)
	match := cmp.Or(a.r.MatchPolicy, admissionregistrationv1.Equivalent)
	seconds := int32(cmp.Or(a.r.Timeout, 10*time.Second) / time.Second) //nolint:gosec // Validate allows 30 at most
	effects := admissionregistrationv1.SideEffectClassNone
	if a.r.SideEffects {
		effects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	rules := make([]admissionregistrationv1.RuleWithOperations, len(a.r.Rules))
	for i := range a.r.Rules {
		a.r.Rules[i].DeepCopyInto(&rules[i])
		if rules[i].Scope == nil { // the API server's default
			all := admissionregistrationv1.AllScopes
			rules[i].Scope = &all
		}
	}
	objects := a.r.ObjectSelector.DeepCopy()
	if objects == nil {
		objects = &metav1.LabelSelector{}
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name: a.name, ClientConfig: w.clientConfig(a.path), Rules: rules, FailurePolicy: &failure, MatchPolicy: &match,
		NamespaceSelector: w.namespaces(a.r.NamespaceSelector), ObjectSelector: objects, SideEffects: &effects,
		TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"}, MatchConditions: conditions(a),
	}
}

func (w *Webhooks) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	if w.o.URL != "" {
		url := strings.TrimSuffix(w.o.URL, "/") + path
		return admissionregistrationv1.WebhookClientConfig{URL: &url}
	}
	port := cmp.Or(w.o.ServicePort, 443)
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: w.o.Service.Namespace, Name: w.o.Service.Name, Path: &path, Port: &port,
	}}
}

// namespaces adds the exclusion of the operator's own namespace to a selector.
func (w *Webhooks) namespaces(s *metav1.LabelSelector) *metav1.LabelSelector {
	s = s.DeepCopy()
	if s == nil {
		s = &metav1.LabelSelector{}
	}
	if own := w.o.Service.Namespace; own != "" {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{own},
		})
	}
	return s
}

func (w *Webhooks) conversionOf(kind schema.GroupKind) *unstructured.Unstructured {
	config := w.clientConfig(conversionPath)
	to := map[string]any{}
	if config.URL != nil {
		to["url"] = *config.URL
	} else {
		s := config.Service
		to["service"] = map[string]any{"namespace": s.Namespace, "name": s.Name, "path": *s.Path, "port": int64(*s.Port)}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": crdKind.GroupVersion().String(), "kind": crdKind.Kind,
		"metadata": map[string]any{"name": w.o.plural(kind) + "." + kind.Group},
		"spec": map[string]any{"conversion": map[string]any{
			"strategy": "Webhook",
			"webhook":  map[string]any{"clientConfig": to, "conversionReviewVersions": []any{"v1"}},
		}},
	}}
}

func target(obj *unstructured.Unstructured) string { return obj.GetKind() + " " + obj.GetName() }
