// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/environment"
)

// CompileConditions implements crdschema.Schemas.
func (schemas) CompileConditions(
	conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType,
) func(*admissionv1.AdmissionRequest) (bool, error) {
	expressions := make([]admissioncel.ExpressionAccessor, len(conditions))
	for i := range conditions {
		expressions[i] = (*matchconditions.MatchCondition)(&conditions[i])
	}
	compiler := admissioncel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(
		expressions, admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions,
	), &policy, "webhook", "", "")
	return func(r *admissionv1.AdmissionRequest) (bool, error) {
		attributes, err := versioned(r)
		if err != nil {
			return false, err
		}
		result := matcher.Match(context.Background(), attributes, nil, authorizerfactory.NewAlwaysAllowAuthorizer())
		return result.Matches, result.Error
	}
}

// versioned returns a request in the form of the API server's code.
func versioned(r *admissionv1.AdmissionRequest) (*admission.VersionedAttributes, error) {
	object, err := decodeObject(r.Object.Raw)
	if err != nil {
		return nil, err
	}
	old, err := decodeObject(r.OldObject.Raw)
	if err != nil {
		return nil, err
	}
	options, err := decodeObject(r.Options.Raw)
	if err != nil {
		return nil, err
	}
	kind := schema.GroupVersionKind(r.Kind)
	return &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, kind, r.Namespace, r.Name,
			schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), options, *r.DryRun, requester(r.UserInfo)),
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old), VersionedKind: kind,
	}, nil
}

func requester(u authenticationv1.UserInfo) user.Info {
	extra := map[string][]string{}
	for key, values := range u.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
}

// decodeObject returns nil if there is no object.
func decodeObject(data []byte) (runtime.Object, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(data)
}
