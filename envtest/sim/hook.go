// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

var (
	mutatingConfigurations   = admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	validatingConfigurations = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
)

// hook is an admission webhook of a configuration. A validating one has the same fields, except for
// the reinvocation policy.
type hook struct {
	admissionregistrationv1.MutatingWebhook
	mutates             bool
	id                  string // changes with the configuration
	namespaces, objects labels.Selector
	broken              error // the selectors are invalid

	// holds reports whether the matchConditions hold. It is nil until they are needed.
	holds func(*admissionv1.AdmissionRequest) (bool, error)
}

// hooks are the webhooks of a resource's configurations, in the order of their calls.
type hooks struct {
	of      *table
	changes int // of the table, when the list was read
	list    []*hook
}

func (s *Server) hooksLocked(of schema.GroupVersionResource) []*hook {
	t := s.tables[of]
	if t == nil || len(t.objects) == 0 {
		return nil
	}
	known := s.hooks[of]
	if changes := t.dropped + len(t.events); known.of != t || known.changes != changes {
		known = hooks{of: t, changes: changes}
		for _, u := range t.sorted() {
			known.list = append(known.list, readHooks(u, of == mutatingConfigurations)...)
		}
		s.hooks[of] = known
	}
	return known.list
}

func readHooks(u *unstructured.Unstructured, mutates bool) []*hook {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return nil // only Put stores such an object
	}
	var list []*hook
	for i := range c.Webhooks {
		rules.DefaultMutatingWebhook(&c.Webhooks[i])
		h := &hook{MutatingWebhook: c.Webhooks[i], mutates: mutates, id: fmt.Sprint(c.Kind, c.Name, c.ResourceVersion, i)}
		if h.namespaces, h.broken = metav1.LabelSelectorAsSelector(h.NamespaceSelector); h.broken == nil {
			h.objects, h.broken = metav1.LabelSelectorAsSelector(h.ObjectSelector)
		}
		list = append(list, h)
	}
	return list
}

// matchLocked returns the call of a webhook for a write, or nil if the webhook does not want it.
func (s *Server) matchLocked(h *hook, a *attributes) (*invocation, error) {
	i, err := s.selectLocked(h, a)
	if i == nil || err != nil || len(h.MatchConditions) == 0 {
		return i, err
	}
	if wanted, err := s.conditionsLocked(a, i); err != nil || !wanted {
		return nil, err
	}
	return i, nil
}

// selectLocked is matchLocked without the matchConditions.
func (s *Server) selectLocked(h *hook, a *attributes) (*invocation, error) {
	if h.broken != nil {
		return nil, apierrors.NewInternalError(h.broken)
	}
	selected, err := s.selectedLocked(h, a)
	if !selected && err == nil || !h.objects.Empty() && !selects(h.objects, a.object) && !selects(h.objects, a.old) {
		return nil, nil //nolint:nilnil // see above
	}
	t := s.wantedLocked(h, a)
	switch {
	case t == nil:
		return nil, nil //nolint:nilnil // see above
	case err != nil:
		return nil, err
	}
	i := &invocation{hook: h, table: t, codec: a.codec, object: a.object, old: a.old}
	if t == a.table || a.codec.Kind != a.table.GVK() {
		return i, nil
	}
	i.codec = t.codec()
	if a.object != nil {
		if i.object, err = s.convertOneLocked(&a.request.answers, t, a.object); err != nil {
			return nil, internal(err)
		}
	}
	if a.old != nil {
		if i.old, err = s.convertOneLocked(&a.request.answers, t, a.old); err != nil {
			return nil, internal(err)
		}
	}
	return i, nil
}

// selects reports whether an object exists and has the labels.
func selects(selector labels.Selector, u *unstructured.Unstructured) bool {
	return u != nil && selector.Matches(labels.Set(u.GetLabels()))
}

// selectedLocked reports whether a webhook's namespace selector selects a write. It selects all
// objects that have no namespace.
func (s *Server) selectedLocked(h *hook, a *attributes) (bool, error) {
	if h.namespaces.Empty() || a.namespace() == "" && !a.table.IsNamespaces() {
		return true, nil
	}
	if a.table.IsNamespaces() && a.request.Subresource == "" && a.object != nil {
		return selects(h.namespaces, a.object), nil
	}
	namespaces := s.tables[kinds.Namespaces.GVR()]
	if namespaces == nil {
		return h.namespaces.Matches(labels.Set{corev1.LabelMetadataName: a.namespace()}), nil
	}
	namespace := namespaces.objects[key{name: a.namespace()}]
	if namespace == nil {
		return false, namespaces.NotFound(a.namespace())
	}
	return selects(h.namespaces, namespace), nil
}

// wantedLocked returns the version of the resource that a webhook's rules name: the requested one
// or, with matchPolicy Equivalent, another one. It returns nil if there is none.
func (s *Server) wantedLocked(h *hook, a *attributes) *table {
	wants := func(t *table) func(admissionregistrationv1.RuleWithOperations) bool {
		return func(r admissionregistrationv1.RuleWithOperations) bool { return matches(r, a, t.GVR()) }
	}
	if slices.ContainsFunc(h.Rules, wants(a.table)) {
		return a.table
	}
	if *h.MatchPolicy != admissionregistrationv1.Equivalent || a.table.BuiltIn {
		return nil
	}
	for _, r := range h.Rules {
		for _, t := range s.sortedTablesLocked() {
			if t.store == a.table.store && wants(t)(r) {
				return t
			}
		}
	}
	return nil
}

func matches(r admissionregistrationv1.RuleWithOperations, a *attributes, of schema.GroupVersionResource) bool {
	has := func(list []string, one string) bool { return slices.Contains(list, "*") || slices.Contains(list, one) }
	namespaced := a.namespace() != "" && !a.table.IsNamespaces()
	switch {
	case *r.Scope == admissionregistrationv1.NamespacedScope && !namespaced, *r.Scope == admissionregistrationv1.ClusterScope && namespaced:
		return false
	case !slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o == admissionregistrationv1.OperationAll || admissionv1.Operation(o) == a.operation
	}):
		return false
	case !has(r.APIGroups, of.Group) || !has(r.APIVersions, of.Version):
		return false
	}
	return slices.ContainsFunc(r.Resources, func(path string) bool {
		resource, subresource, _ := strings.Cut(path, "/")
		return (resource == "*" || resource == of.Resource) && (subresource == "*" || subresource == a.request.Subresource)
	})
}
