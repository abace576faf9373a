// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// selection is which objects of a table a list or watch returns.
type selection struct {
	table     *store.Table
	namespace string // "" is all
	labels    labels.Selector
	fields    fields.Selector
}

func (s *selection) matches(o *unstructured.Unstructured) bool {
	if s.namespace != "" && o.GetNamespace() != s.namespace {
		return false
	}
	if s.labels != nil && !s.labels.Empty() && !s.labels.Matches(labelsOf(o)) {
		return false
	}
	return s.fields == nil || s.fields.Empty() || s.fields.Matches(fieldsOf{s.table, o})
}

// empty reports whether all objects match.
func (s *selection) empty() bool {
	return (s.labels == nil || s.labels.Empty()) && (s.fields == nil || s.fields.Empty())
}

// single returns the only name that can match.
func (s *selection) single() (string, bool) {
	if s.fields == nil {
		return "", false
	}
	return s.fields.RequiresExactMatch(metav1.ObjectNameField)
}

// labelSet reads an object's labels without copying them. It implements labels.Labels.
type labelSet map[string]any

func labelsOf(o *unstructured.Unstructured) labelSet {
	metadata, _ := o.Object["metadata"].(map[string]any)
	set, _ := metadata["labels"].(map[string]any)
	return set
}

func (l labelSet) Has(label string) bool { return l[label] != nil }

func (l labelSet) Get(label string) string { value, _ := l.Lookup(label); return value }

func (l labelSet) Lookup(label string) (string, bool) {
	value, ok := l[label].(string)
	return value, ok
}

// fieldsOf reads the fields of an object that field selectors can name. It implements
// fields.Fields.
type fieldsOf struct {
	table *store.Table
	*unstructured.Unstructured
}

func (f fieldsOf) Has(string) bool { return true }

func (f fieldsOf) Get(field string) string {
	switch field {
	case metav1.ObjectNameField:
		return f.GetName()
	case "metadata.namespace":
		return f.GetNamespace()
	}
	for _, of := range selectable[schema.GroupKind{Group: f.table.Group, Kind: f.table.Kind}] {
		if of.name == field {
			return of.value(f.Object)
		}
	}
	return text(f.Object, field)
}

// selectableField is a field that a field selector of a built-in kind can name.
type selectableField struct {
	name string
	path string // where its value is if the name is not the path
	none string // the value of an unset field
}

func (s selectableField) value(object map[string]any) string {
	path := s.path
	if path == "" {
		path = s.name
	}
	switch value := text(object, path); {
	case value != "":
		return value
	case s.name == "source":
		return text(object, "reportingComponent")
	default:
		return s.none
	}
}

// selectable are the field selectors of built-in kinds in addition to name and namespace.
var selectable = map[schema.GroupKind][]selectableField{
	{Kind: "Pod"}: {
		{name: "spec.nodeName"},
		{name: "spec.restartPolicy"},
		{name: "spec.schedulerName"},
		{name: "spec.serviceAccountName"},
		{name: "spec.hostNetwork", none: "false"},
		{name: "status.phase"},
		{name: "status.podIP", path: "status.podIPs.0.ip"},
		{name: "status.podIPs", path: "-"}, // accepted, and matches nothing
		{name: "status.nominatedNodeName"},
		{name: "spec.host", path: "spec.nodeName"},
	},
	{Kind: "Node"}:                  {{name: "spec.unschedulable", none: "false"}},
	{Kind: "ReplicationController"}: {{name: "status.replicas", none: "0"}},
	{Kind: "Namespace"}:             {{name: "status.phase"}},
	{Kind: "Secret"}:                {{name: "type"}},
	{Kind: "Service"}:               {{name: "spec.clusterIP"}, {name: "spec.type"}},
	{Kind: "Event"}: {
		{name: "involvedObject.kind"},
		{name: "involvedObject.namespace"},
		{name: "involvedObject.name"},
		{name: "involvedObject.uid"},
		{name: "involvedObject.apiVersion"},
		{name: "involvedObject.resourceVersion"},
		{name: "involvedObject.fieldPath"},
		{name: "reason"},
		{name: "reportingComponent"},
		{name: "source", path: "source.component"},
		{name: "type"},
	},
	{Group: "events.k8s.io", Kind: "Event"}: {
		{name: "regarding.kind"},
		{name: "regarding.namespace"},
		{name: "regarding.name"},
		{name: "regarding.uid"},
		{name: "regarding.apiVersion"},
		{name: "regarding.resourceVersion"},
		{name: "regarding.fieldPath"},
		{name: "reason"},
		{name: "reportingController"},
		{name: "type"},
	},
	{Group: "batch", Kind: "Job"}:                                     {{name: "status.successful", path: "status.succeeded", none: "0"}},
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {{name: "spec.signerName"}},
}

// clusterScopedSelectors are the cluster-scoped kinds whose selectors refuse metadata.namespace.
var clusterScopedSelectors = []string{"Node", "Namespace", "CertificateSigningRequest"}

// checkField returns an error unless field selectors of the kind can name the field.
func checkField(t *store.Table, field string) error {
	special, ok := selectable[schema.GroupKind{Group: t.Group, Kind: t.Kind}]
	switch {
	case field == metav1.ObjectNameField:
		return nil
	case field == "metadata.namespace" && (t.Namespaced || t.BuiltIn && !slices.Contains(clusterScopedSelectors, t.Kind)):
		return nil
	case slices.ContainsFunc(special, func(f selectableField) bool { return f.name == field }):
		return nil
	case !t.BuiltIn && slices.Contains(t.SelectableFields, "."+field):
		return nil
	case t.Kind == "Job" && ok:
		return fmt.Errorf("field label %q not supported for Job", field)
	case t.BuiltIn && !ok:
		return fmt.Errorf("%q is not a known field selector: only %q, %q", field, metav1.ObjectNameField, "metadata.namespace")
	}
	return fmt.Errorf("field label not supported: %s", field)
}

// text returns the value at a path as selectors compare it; "" if there is none.
func text(object any, path string) string {
	for _, field := range splitPath(path) {
		switch at := object.(type) {
		case map[string]any:
			object = at[field]
		case []any:
			i, err := strconv.Atoi(field)
			if err != nil || i >= len(at) {
				return ""
			}
			object = at[i]
		default:
			return ""
		}
	}
	switch object.(type) {
	case nil, map[string]any, []any:
		return ""
	}
	return fmt.Sprint(object)
}

// splitPath returns the fields of a path such as spec.nodeName or .spec.nodeName.
func splitPath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// prefix is the namespace in which the paths of the selected objects lie.
func (s *selection) prefix() string {
	if s.namespace != "" || s.fields == nil {
		return s.namespace
	}
	namespace, _ := s.fields.RequiresExactMatch("metadata.namespace")
	return namespace
}

func selectionOf(r *request.Request, t *store.Table) (*internalversion.ListOptions, *selection, error) {
	o := &internalversion.ListOptions{}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.Query, metav1.SchemeGroupVersion, o); err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	o.Watch = r.Verb == "watch"
	internalversion.SetListOptionsDefaults(o, true)
	if errs := validation.ValidateListOptions(o, true); len(errs) > 0 {
		return nil, nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	where := &selection{table: t, namespace: r.Namespace, labels: o.LabelSelector, fields: o.FieldSelector}
	if o.FieldSelector != nil {
		for _, term := range o.FieldSelector.Requirements() {
			if err := checkField(t, term.Field); err != nil {
				return nil, nil, apierrors.NewBadRequest(err.Error())
			}
		}
	}
	if r.Only != "" && t.Namespaced == (r.Namespace != "") {
		switch name, ok := where.single(); {
		case where.empty() || where.fields == nil || where.fields.Empty():
			where.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, r.Only)
		case !ok || name != r.Only:
			return nil, nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	return o, where, nil
}
