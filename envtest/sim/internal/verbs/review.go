// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// review answers a question about access or identity. Everything is allowed; a rule of package
// fault can change the answer.
func (a *API) review(r *request.Request, t *store.Table) (*http.Response, error) {
	if r.Name != "" || r.Subresource != "" {
		return nil, request.NoResource()
	}
	if r.HTTP.Method != http.MethodPost {
		return nil, request.NotAllowed()
	}
	if err := r.WriteOptions("CreateOptions"); err != nil {
		return nil, err
	}
	u, err := r.Decode(t)
	if err != nil {
		return nil, err
	}
	if err := r.MatchNamespace(u); err != nil {
		return nil, err
	}
	if err := a.managers.Manage(r, t, nil, u); err != nil {
		return nil, err
	}
	status, errs := judge(u)
	switch {
	case len(errs) > 0:
		invalid := apierrors.NewInvalid(t.GVK().GroupKind(), "", errs)
		invalid.ErrStatus.Details.Kind = ""
		invalid.ErrStatus.Message = "." + t.Group + invalid.ErrStatus.Message[len(t.GVK().GroupKind().String()):]
		return nil, invalid
	case status == nil && t.Kind == "TokenReview":
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	case status == nil:
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	if u.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(status); err != nil {
		return nil, err
	}
	if t.Kind == "SelfSubjectReview" {
		u.SetCreationTimestamp(metav1.Now())
	}
	return r.Answer(http.StatusCreated, u)
}

// judge returns the status of a review, or nil for one without its only required field.
func judge(u *unstructured.Unstructured) (status any, errs field.ErrorList) {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, path...)...)
		return value
	}
	switch u.GetKind() {
	case "SelfSubjectReview":
		return &authenticationv1.SelfSubjectReviewStatus{UserInfo: request.Admin()}, nil
	case "TokenReview":
		if text("token") == "" {
			return nil, nil
		}
		return &authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}, nil
	case "SelfSubjectRulesReview":
		if text("namespace") == "" {
			return nil, nil
		}
		unstructured.RemoveNestedField(u.Object, "spec", "namespace")
		return everything(), nil
	case "SubjectAccessReview", "LocalSubjectAccessReview":
		groups, _, _ := unstructured.NestedSlice(u.Object, "spec", "groups")
		if text("user") == "" && len(groups) == 0 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "user"), "", "at least one of user or group must be specified"))
		}
		if in := text("resourceAttributes", "namespace"); u.GetKind() == "LocalSubjectAccessReview" && in != u.GetNamespace() {
			errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), in, "must match metadata.namespace"))
		}
	}
	return &authorizationv1.SubjectAccessReviewStatus{Allowed: true}, append(append(errs, oneSubject(u)...), noMetadata(u)...)
}

// noMetadata returns an error if a review of access has metadata of its client.
func noMetadata(u *unstructured.Unstructured) field.ErrorList {
	var has metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(jsonvalue.Object(u.Object, "metadata"), &has); err != nil {
		return nil // decoding has checked it
	}
	own := has
	if own.ManagedFields = nil; u.GetKind() == "LocalSubjectAccessReview" {
		own.Namespace = ""
	}
	if jsonvalue.Equal(own, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), has, "must be empty")}
}

// oneSubject returns an error unless a review asks about a resource or about a path.
func oneSubject(u *unstructured.Unstructured) field.ErrorList {
	_, resource, _ := unstructured.NestedMap(u.Object, "spec", "resourceAttributes")
	path, other, _ := unstructured.NestedMap(u.Object, "spec", "nonResourceAttributes")
	switch {
	case resource && other:
		as := struct{ Path, Verb any }{path["path"], path["verb"]}
		return field.ErrorList{field.Invalid(field.NewPath("spec"), as, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	case !resource && !other:
		return field.ErrorList{field.Invalid(field.NewPath("spec"), nil,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

// everything is the right to do everything.
func everything() *authorizationv1.SubjectRulesReviewStatus {
	all := []string{"*"}
	return &authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}},
	}
}
