// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package admission

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
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
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
	of      *store.Table
	changes int // of the table, when the list was read
	list    []*hook
}

func (p *Admission) webhooksOf(of schema.GroupVersionResource) []*hook {
	t := p.store.Tables[of]
	if t == nil || len(t.Objects) == 0 {
		return nil
	}
	known := p.hooks[of]
	if changes := t.End(); known.of != t || known.changes != changes {
		known = hooks{of: t, changes: changes}
		for _, u := range t.Sorted() {
			known.list = append(known.list, readHooks(u, of == mutatingConfigurations)...)
		}
		p.hooks[of] = known
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

// match returns the call of a webhook for a write, or nil if the webhook does not want it.
func (p *Admission) match(h *hook, a *attributes) (*invocation, error) {
	i, err := p.choose(h, a)
	if i == nil || err != nil || len(h.MatchConditions) == 0 {
		return i, err
	}
	if wanted, err := p.conditions(a, i); err != nil || !wanted {
		return nil, err
	}
	return i, nil
}

// choose is match without the matchConditions.
func (p *Admission) choose(h *hook, a *attributes) (*invocation, error) {
	if h.broken != nil {
		return nil, apierrors.NewInternalError(h.broken)
	}
	selected, err := p.selected(h, a)
	if !selected && err == nil || !h.objects.Empty() && !selects(h.objects, a.Object) && !selects(h.objects, a.old) {
		return nil, nil //nolint:nilnil // see above
	}
	t := p.wanted(h, a)
	switch {
	case t == nil:
		return nil, nil //nolint:nilnil // see above
	case err != nil:
		return nil, err
	}
	i := &invocation{hook: h, table: t, codec: a.Codec, object: a.Object, old: a.old}
	if t == a.table || a.Codec.Kind != a.table.GVK() {
		return i, nil
	}
	i.codec = t.Codec()
	if a.Object != nil {
		if i.object, err = p.converter.ConvertOne(&a.request.Answers, t, a.Object); err != nil {
			return nil, internal(err)
		}
	}
	if a.old != nil {
		if i.old, err = p.converter.ConvertOne(&a.request.Answers, t, a.old); err != nil {
			return nil, internal(err)
		}
	}
	return i, nil
}

// selects reports whether an object exists and has the labels.
func selects(selector labels.Selector, u *unstructured.Unstructured) bool {
	return u != nil && selector.Matches(labels.Set(u.GetLabels()))
}

// selected reports whether a webhook's namespace selector selects a write. It selects all
// objects that have no namespace.
func (p *Admission) selected(h *hook, a *attributes) (bool, error) {
	if h.namespaces.Empty() || a.namespace() == "" && !a.table.IsNamespaces() {
		return true, nil
	}
	if a.table.IsNamespaces() && a.request.Subresource == "" && a.Object != nil {
		return selects(h.namespaces, a.Object), nil
	}
	namespaces := p.store.Tables[kinds.Namespaces.GVR()]
	if namespaces == nil {
		return h.namespaces.Matches(labels.Set{corev1.LabelMetadataName: a.namespace()}), nil
	}
	namespace := namespaces.Objects[store.Key{Name: a.namespace()}]
	if namespace == nil {
		return false, namespaces.NotFound(a.namespace())
	}
	return selects(h.namespaces, namespace), nil
}

// wanted returns the version of the resource that a webhook's rules name: the requested one
// or, with matchPolicy Equivalent, another one. It returns nil if there is none.
func (p *Admission) wanted(h *hook, a *attributes) *store.Table {
	wants := func(t *store.Table) func(admissionregistrationv1.RuleWithOperations) bool {
		return func(r admissionregistrationv1.RuleWithOperations) bool { return matches(r, a, t.GVR()) }
	}
	if slices.ContainsFunc(h.Rules, wants(a.table)) {
		return a.table
	}
	if *h.MatchPolicy != admissionregistrationv1.Equivalent || a.table.BuiltIn {
		return nil
	}
	for _, r := range h.Rules {
		for _, t := range p.store.SortedTables() {
			if t.Storage == a.table.Storage && wants(t)(r) {
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
