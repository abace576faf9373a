// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math"
	"net/http"
	"slices"

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

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/admission"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// noReplicas marks the Scale of an object without replicas, as in the real server.
const noReplicas = math.MinInt32

// scale answers a request for the scale subresource of live, which is nil if there is none.
func (a *API) scale(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	if live == nil && r.Verb != "update" {
		return nil, t.NotFound(r.Name)
	}
	switch {
	case r.Verb == "apply" && !t.BuiltIn:
		return nil, request.Unsupported(r)
	case r.Verb == "get":
		current, err := scaleOf(t, live)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return r.Answer(http.StatusOK, current)
	case slices.Contains([]string{"update", "patch", "apply"}, r.Verb):
		return a.rescale(r, t, live)
	}
	return nil, request.Unsupported(r)
}

// requestedScale returns what the request makes of current, which is the scale of an object; nil if
// there is none.
func (a *API) requestedScale(r *request.Request, scale *store.Table, current *unstructured.Unstructured) (u *unstructured.Unstructured, err error) {
	if r.Verb == "update" {
		if err = r.WriteOptions("UpdateOptions"); err == nil {
			u, err = r.Decode(scale)
		}
	} else {
		var p *patch
		if p, err = patchOf(r, scale.Codec()); err == nil {
			u, err = a.patched(p, scale, current)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := r.MatchNamespace(u); err != nil {
		return nil, err
	}
	return u, r.MatchName(u)
}

// admitScale returns what webhooks make of u, the new state of the scale current.
func (a *API) admitScale(r *request.Request, t, scale *store.Table, current, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	write := admission.AttributesOf(r, t, current, u)
	write.Codec = scale.Codec()
	if err := a.admission.Mutate(write); err != nil {
		return nil, err
	}
	return write.Object, a.admission.Approve(write)
}

func scaleResource(of kinds.Resource) kinds.Resource {
	return kinds.Resource{Group: "autoscaling", Version: "v1", Kind: "Scale", Name: of.Name, Namespaced: of.Namespaced}
}

// rescale writes the replicas that the request sets to live, and takes ownership of them.
func (a *API) rescale(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	of := kinds.Definition{Resource: scaleResource(t.Resource), BuiltIn: true}
	scale := &store.Table{Definition: of, Storage: store.NewStorage(of.GVK(), a.store.Version)}
	if live == nil {
		if _, err := a.requestedScale(r, scale, nil); err != nil {
			return nil, err
		}
		return nil, t.NotFound(r.Name)
	}
	path, _ := t.Scale.Fields()
	owners := managedfields.NewScaleHandler(live.GetManagedFields(), t.GV(), managedfields.ResourcePathMappings{t.GV().String(): fieldPath(path)})
	current, err := ownedScale(t, live, owners)
	if err != nil {
		return nil, err
	}
	u, err := a.requestedScale(r, scale, current)
	if err != nil {
		return nil, err
	}
	shown := current.DeepCopy()
	if !t.BuiltIn { // the real server's webhooks see no owners of a custom object's scale
		u.SetManagedFields(nil)
		shown.SetManagedFields(nil)
	}
	if u, err = a.admitScale(r, t, scale, shown, u); err != nil {
		return nil, err
	}
	if err := a.managers.Manage(r, scale, current, u); err != nil {
		return nil, err
	}
	if uid := u.GetUID(); r.Verb == "update" && uid != "" && uid != live.GetUID() {
		return nil, wrongUID(t, r, u, live.GetUID())
	}
	next, err := rescaled(t, live, u)
	if err != nil {
		return nil, err
	}
	fields, err := owners.ToParent(u.GetManagedFields())
	if err != nil {
		return nil, err
	}
	next.SetManagedFields(fields)
	stored, err := a.change(r, t, live, next)
	if err != nil {
		return nil, err
	}
	answer, err := scaleOf(t, stored)
	if answer == nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return r.Answer(http.StatusOK, answer)
}

// ownedScale returns the scale of live with the owners of its replicas.
func ownedScale(t *store.Table, live *unstructured.Unstructured, owners *managedfields.ScaleHandler) (*unstructured.Unstructured, error) {
	current, err := scaleOf(t, live)
	if current == nil {
		return nil, err
	}
	if current.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	return &unstructured.Unstructured{Object: content}, err
}

// rescaled returns live with the replicas of u, which is a Scale.
func rescaled(t *store.Table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	switch {
	case replicas == noReplicas:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", t.Scale.SpecReplicas))
	case t.BuiltIn && replicas < 0:
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "autoscaling", Kind: "Scale"}, live.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), replicas, validation.IsNegativeErrorMsg),
		})
	case t.BuiltIn && u.GetUID() != "" && u.GetUID() != live.GetUID():
		return nil, kinds.Conflict(schema.GroupResource{Group: t.Group, Resource: t.Name + "/scale"}, live.GetName(),
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", u.GetUID(), live.GetUID())
	}
	next := live.DeepCopy()
	next.SetResourceVersion(u.GetResourceVersion())
	if next.GetResourceVersion() == "" {
		next.SetResourceVersion(live.GetResourceVersion())
	}
	path, _ := t.Scale.Fields()
	return next, unstructured.SetNestedField(next.Object, replicas, path...)
}

// fieldPath returns a path in the form of managedFields.
func fieldPath(steps []string) fieldpath.Path {
	var path fieldpath.Path
	for _, step := range steps {
		path = append(path, fieldpath.PathElement{FieldName: &step})
	}
	return path
}

// scaleOf returns the scale of an object. An object without replicas has an error and a Scale; an
// object whose fields have wrong types has no Scale.
func scaleOf(t *store.Table, u *unstructured.Unstructured) (*autoscalingv1.Scale, error) {
	specPath, statusPath := t.Scale.Fields()
	spec, found, err := unstructured.NestedInt64(u.Object, specPath...)
	if err != nil {
		return nil, err
	}
	status, _, err := unstructured.NestedInt64(u.Object, statusPath...)
	if err != nil {
		return nil, err
	}
	selector, err := scaleSelector(t, u)
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
	if !found && !t.BuiltIn {
		scale.Spec.Replicas = noReplicas
		return scale, fmt.Errorf("the spec replicas field %q does not exist", t.Scale.SpecReplicas)
	}
	return scale, nil
}

// scaleSelector returns the label selector of an object's Pods as text.
func scaleSelector(t *store.Table, u *unstructured.Unstructured) (string, error) {
	if !t.BuiltIn {
		if t.Scale.LabelSelector == "" {
			return "", nil
		}
		text, _, err := unstructured.NestedString(u.Object, kinds.Steps(t.Scale.LabelSelector)...)
		return text, err
	}
	typed := &metav1.LabelSelector{}
	content := jsonvalue.Object(u.Object, "spec", "selector")
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
