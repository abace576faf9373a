// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/kube-openapi/pkg/spec3"
)

// versionSchema is the schema of one version. It implements crdschema.Schema.
type versionSchema struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	status     validation.SchemaValidator // nil without a schema of the status
	rules      *cel.Validator             // nil without CEL rules
	preserve   bool                       // unknown fields stay
	openAPI    func() (*spec3.OpenAPI, error)
}

func (v *versionSchema) OpenAPI() (*spec3.OpenAPI, error) { return v.openAPI() }

func (v *versionSchema) Default(u *unstructured.Unstructured) []error {
	defaulting.Default(u.Object, v.structural)
	if v.preserve {
		return nil
	}
	unknown := pruning.PruneWithOptions(u.Object, v.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, v.structural)
	var errs []error
	for _, path := range unknown {
		errs = append(errs, fmt.Errorf("unknown field %q", path))
	}
	return errs
}

// Validate implements crdschema.Schema, in the order of the real API server.
func (v *versionSchema) Validate(u, old *unstructured.Unstructured, subresource string) field.ErrorList {
	ctx := context.Background()
	var errs field.ErrorList
	var before any
	var options []cel.Option
	if old == nil {
		errs = validation.ValidateCustomResource(nil, u.Object, v.validator)
	} else {
		same := common.NewCorrelatedObject(u.Object, old.Object, &model.Structural{Structural: v.structural})
		errs = v.validateUpdate(u, old, subresource, same)
		before, options = old.Object, []cel.Option{cel.WithRatcheting(same)}
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, v.structural, false)...)
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, v.structural, old.Object)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, v.structural, u.Object)...)
	}
	if v.rules == nil {
		return errs
	}
	if blocksRules(errs) {
		return append(errs, field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
	}
	failed, _ := v.rules.Validate(ctx, nil, v.structural, u.Object, before, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, failed...)
}

// validateUpdate validates what a request can change: the object, or its status.
func (v *versionSchema) validateUpdate(u, old *unstructured.Unstructured, subresource string, same *common.CorrelatedObject) field.ErrorList {
	if subresource != "status" {
		return validation.ValidateCustomResourceUpdate(nil, u.Object, old.Object, v.validator, validation.WithRatcheting(same))
	}
	status, ok := u.Object["status"]
	if !ok || v.status == nil {
		return nil
	}
	return validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old.Object["status"], v.status,
		validation.WithRatcheting(same.Key("status")))
}

// blocksRules reports whether CEL rules could not be evaluated because of an error.
func blocksRules(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}
