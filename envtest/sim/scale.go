// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math"
	"net/http"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// scalePaths are the fields of a kind with a scale subresource, such as ".spec.replicas". The
// built-in kinds have a zero scalePaths.
type scalePaths struct{ specReplicas, statusReplicas, labelSelector string }

// noReplicas marks the Scale of an object without replicas, as in the real server.
const noReplicas = math.MinInt32

func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// fields returns the steps to the replicas in spec and status.
func (p scalePaths) fields() (spec, status []string) {
	if p.specReplicas == "" {
		return []string{"spec", "replicas"}, []string{"status", "replicas"}
	}
	return steps(p.specReplicas), steps(p.statusReplicas)
}

// scaleLocked answers a request for the scale subresource of live, which is nil if there is none.
func (s *Server) scaleLocked(r *Request, t *table, live *unstructured.Unstructured) (*http.Response, error) {
	if live == nil && r.Verb != "update" {
		return nil, t.notFound(r.Name)
	}
	scale := &table{definition: definition{Resource: scaleResource(t.Resource), builtIn: true}}
	if r.Verb == "get" {
		current, err := t.scaleOf(live)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return r.answer(http.StatusOK, current)
	}
	old, fields, err := t.scaleBefore(live)
	if err != nil {
		return nil, err
	}
	u, err := r.newScale(scale, old)
	if err != nil {
		return nil, err
	}
	if err := r.matchNamespace(u); err != nil {
		return nil, err
	}
	if err := r.matchName(u); err != nil {
		return nil, err
	}
	if live == nil {
		return nil, t.notFound(r.Name)
	}
	if r.Verb == "apply" && !t.builtIn { // the real server fails, too
		return nil, fmt.Errorf("failed to convert new object (/%s; autoscaling/v1, Kind=Scale) to proper version: "+
			"request to convert CR to an invalid group/version: autoscaling/v1", r.Name)
	}
	if manager, err := scale.fieldManager("scale"); err != nil {
		return nil, err
	} else if r.Verb != "apply" {
		manager.UpdateNoErrors(old, u, r.fieldManager())
	}
	managed, err := fields.ToParent(u.GetManagedFields())
	if err != nil {
		return nil, err
	}
	return s.rescaleLocked(r, t, live, u, managed)
}

func scaleResource(of Resource) Resource {
	return Resource{Group: "autoscaling", Version: "v1", Kind: "Scale", Name: of.Name, Namespaced: of.Namespaced}
}

// scaleBefore returns the scale of live (nil: none) with its managedFields, and what translates
// those to the managedFields of live.
func (t *table) scaleBefore(live *unstructured.Unstructured) (*unstructured.Unstructured, *managedfields.ScaleHandler, error) {
	if live == nil {
		return nil, nil, nil
	}
	current, err := t.scaleOf(live)
	if current == nil {
		return nil, nil, err
	}
	path, _ := t.scale.fields()
	var steps []any
	for _, step := range path {
		steps = append(steps, step)
	}
	replicas, err := fieldpath.MakePath(steps...)
	if err != nil {
		return nil, nil, err
	}
	fields := managedfields.NewScaleHandler(live.GetManagedFields(), t.gv(),
		managedfields.ResourcePathMappings{t.gv().String(): replicas, t.stored.GroupVersion().String(): replicas})
	if current.ManagedFields, err = fields.ToSubresource(); err != nil {
		return nil, nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	return &unstructured.Unstructured{Object: content}, fields, err
}

// newScale returns what the request makes of a scale.
func (r *Request) newScale(scale *table, old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch r.Verb {
	case "update":
		if err := r.writeOptions("UpdateOptions"); err != nil {
			return nil, err
		}
		return r.decode(scale)
	case "patch", "apply":
		p, err := r.patch(scale.codec())
		if err != nil {
			return nil, err
		}
		if r.Verb == "apply" {
			return p.applied(scale, old)
		}
		return p.merged(old)
	}
	return nil, unsupported(r)
}

// rescaleLocked copies the replicas of u, which is a Scale, to live, with the managedFields that
// result.
func (s *Server) rescaleLocked(r *Request, t *table, live, u *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry) (*http.Response, error) {
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if replicas == noReplicas {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", t.scale.specReplicas))
	}
	next := live.DeepCopy()
	next.SetManagedFields(managed)
	next.SetUID(u.GetUID())
	next.SetResourceVersion(u.GetResourceVersion())
	if next.GetResourceVersion() == "" {
		next.SetResourceVersion(live.GetResourceVersion())
	}
	if t.builtIn && replicas < 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "autoscaling", Kind: "Scale"}, r.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), replicas, validation.IsNegativeErrorMsg),
		})
	}
	path, _ := t.scale.fields()
	if err := unstructured.SetNestedField(next.Object, replicas, path...); err != nil {
		return nil, err
	}
	stored, err := s.replaceLocked(r, t, live, next)
	if err != nil {
		return nil, err
	}
	answer, err := t.scaleOf(stored)
	if answer == nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return r.answer(http.StatusOK, answer)
}

// scaleOf returns the scale of an object. An object without replicas has an error and a Scale; an
// object whose fields have wrong types has no Scale.
func (t *table) scaleOf(u *unstructured.Unstructured) (*autoscalingv1.Scale, error) {
	specPath, statusPath := t.scale.fields()
	spec, found, err := unstructured.NestedInt64(u.Object, specPath...)
	if err != nil {
		return nil, err
	}
	status, _, err := unstructured.NestedInt64(u.Object, statusPath...)
	if err != nil {
		return nil, err
	}
	selector, err := t.scaleSelector(u)
	if err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
			ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(spec)},                         //nolint:gosec // replicas
		Status: autoscalingv1.ScaleStatus{Replicas: int32(status), Selector: selector}, //nolint:gosec // replicas
	}
	if !found && !t.builtIn {
		scale.Spec.Replicas = noReplicas
		return scale, fmt.Errorf("the spec replicas field %q does not exist", t.scale.specReplicas)
	}
	return scale, nil
}

// scaleSelector returns the label selector of an object's Pods as text.
func (t *table) scaleSelector(u *unstructured.Unstructured) (string, error) {
	if !t.builtIn {
		if t.scale.labelSelector == "" {
			return "", nil
		}
		text, _, err := unstructured.NestedString(u.Object, steps(t.scale.labelSelector)...)
		return text, err
	}
	typed := &metav1.LabelSelector{}
	content := object(u.Object, "spec", "selector")
	if t.Kind == "ReplicationController" {
		content = map[string]any{"matchLabels": content}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(typed)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

// validateScale checks the replicas of a custom kind with a scale subresource.
func (t *table) validateScale(u *unstructured.Unstructured) field.ErrorList {
	if t.builtIn || t.scale == nil {
		return nil
	}
	var errs field.ErrorList
	for _, path := range []string{t.scale.specReplicas, t.scale.statusReplicas} {
		if n, ok, _ := unstructured.NestedInt64(u.Object, steps(path)...); ok && n < 0 {
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		}
	}
	return errs
}
