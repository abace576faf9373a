// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
)

// Excludes reports whether the selectors or the slots certainly exclude a write.
func (view *View) Excludes(w *Write) bool {
	if view.Informer.Outside(w) {
		return true
	}
	if view.Labels == nil && view.Fields == nil {
		return false
	}
	if w.Object == nil {
		// A scale changes no labels. If the store lacks the object, the selectors exclude it, or
		// its create is still to come.
		return w.Subresource == "scale"
	}
	o, err := meta.Accessor(w.Object)
	if err != nil {
		return false
	}
	if kind := w.Object.GetObjectKind().GroupVersionKind().Kind; kind != "" && kind != view.Kind.Kind && kind != "PartialObjectMetadata" {
		return false // a subresource, such as a Scale, has other labels
	}
	if view.Labels != nil && !view.Labels.Matches(labels.Set(o.GetLabels())) {
		return true
	}
	if view.Fields == nil {
		return false
	}
	f := fieldsOf{meta: o, object: w.Object, gvk: view.Kind}
	return slices.ContainsFunc(view.Fields.Requirements(), f.fails)
}

// fieldsOf evaluates field selectors by path, like the API server. A missing field is empty.
type fieldsOf struct {
	meta    metav1.Object
	object  runtime.Object
	gvk     schema.GroupVersionKind
	content map[string]any
}

func (f *fieldsOf) fails(r fields.Requirement) bool {
	value, known := f.value(r)
	switch {
	case !known:
		return false
	case r.Operator == selection.NotEquals:
		return value == r.Value
	default:
		return value != r.Value
	}
}

func (f *fieldsOf) value(r fields.Requirement) (value string, known bool) {
	switch r.Field {
	case "metadata.name":
		return f.meta.GetName(), true
	case "metadata.namespace":
		return f.meta.GetNamespace(), true
	case "status.successful": // of Jobs; not a path
		return "", false
	}
	if f.content == nil {
		f.content = f.read()
	}
	if f.content == nil {
		return "", false
	}
	found, there, err := unstructured.NestedFieldNoCopy(f.content, strings.Split(r.Field, ".")...)
	switch {
	case err != nil:
		return "", false
	case !there:
		return "", r.Value != "false" && r.Value != "0" // which a field that is not there may mean
	}
	switch found.(type) {
	case map[string]any, []any: // such as the source of core events
		return "", false
	}
	return fmt.Sprint(found), true
}

// read returns the fields of a complete object in the informer's version, or nil.
func (f *fieldsOf) read() map[string]any {
	if _, ok := f.object.(*metav1.PartialObjectMetadata); ok {
		return nil
	}
	if gv := f.object.GetObjectKind().GroupVersionKind().GroupVersion(); !gv.Empty() && gv != f.gvk.GroupVersion() {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(f.object)
	if err != nil {
		return nil
	}
	return content
}
