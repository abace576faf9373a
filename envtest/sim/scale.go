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
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	var u *unstructured.Unstructured
	var err error
	switch r.Verb {
	case "get":
		current, err := t.scaleOf(live)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return r.answer(http.StatusOK, current)
	case "update":
		if err = r.writeOptions("UpdateOptions"); err == nil {
			u, err = r.decode(scale)
		}
	case "patch":
		u, err = patchedScale(r, t, scale, live)
	default:
		return nil, unsupported(r)
	}
	if err != nil {
		return nil, err
	}
	if err := r.matchNamespace(u); err != nil {
		return nil, err
	}
	if err := r.matchName(u); err != nil {
		return nil, err
	}
	if live != nil {
		if u, err = s.admitScaleLocked(r, t, scale, live, u); err != nil {
			return nil, err
		}
	}
	return s.rescaleLocked(r, t, live, u)
}

// admitScaleLocked returns what webhooks make of u, the new Scale of live.
func (s *Server) admitScaleLocked(r *Request, t, scale *table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	current, err := t.scaleOf(live)
	if current == nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	old, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return nil, err
	}
	a := r.attributesOf(t, &unstructured.Unstructured{Object: old}, u)
	a.codec = scale.codec()
	if err := s.mutateLocked(a); err != nil {
		return nil, err
	}
	return a.object, s.approveLocked(a)
}

func scaleResource(of Resource) Resource {
	return Resource{Group: "autoscaling", Version: "v1", Kind: "Scale", Name: of.Name, Namespaced: of.Namespaced}
}

// patchedScale returns what a patch makes of the scale of live.
func patchedScale(r *Request, t, scale *table, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	p, err := r.patch(scale.codec())
	if err != nil {
		return nil, err
	}
	current, err := t.scaleOf(live)
	if current == nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return nil, err
	}
	return p.merged(&unstructured.Unstructured{Object: content})
}

// rescaleLocked copies the replicas of u, which is a Scale, to live.
func (s *Server) rescaleLocked(r *Request, t *table, live, u *unstructured.Unstructured) (*http.Response, error) {
	if live == nil {
		return nil, t.notFound(r.Name)
	}
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if replicas == noReplicas {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", t.scale.specReplicas))
	}
	next := live.DeepCopy()
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
