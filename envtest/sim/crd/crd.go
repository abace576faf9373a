// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
)

// New starts a server like sim.New. It also validates, defaults and prunes the objects of
// CustomResourceDefinitions, including those among the given objects.
func New(t sim.TB, scheme *runtime.Scheme, objects ...runtime.Object) *sim.Server {
	t.Helper()
	s := sim.NewServer()
	t.Cleanup(s.Close)
	s.UseSchemas(schemas{})
	if err := s.Load(scheme, objects...); err != nil {
		t.Fatal(err)
	}
	return s
}

// schemas implements crdschema.Schemas.
type schemas struct{}

func (schemas) Check(crd, old *unstructured.Unstructured) field.ErrorList {
	definition, err := internal(crd)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	ctx := context.Background()
	if old == nil {
		return crdvalidation.ValidateCustomResourceDefinition(ctx, definition)
	}
	was, err := internal(old)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	return crdvalidation.ValidateCustomResourceDefinitionUpdate(ctx, definition, was)
}

// internal converts a CustomResourceDefinition to the form of its validation.
func internal(crd *unstructured.Unstructured) (*apiextensions.CustomResourceDefinition, error) {
	_, definition, err := decode(crd)
	return definition, err
}

// decode returns a CustomResourceDefinition with its defaults, and in the form of its validation.
func decode(crd *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, *apiextensions.CustomResourceDefinition, error) {
	external, definition := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, external); err != nil {
		return nil, nil, err
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(external)
	return external, definition, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(external.DeepCopy(), definition, nil)
}

func (schemas) Schema(crd *unstructured.Unstructured, version string) (crdschema.Schema, error) {
	external, definition, err := decode(crd)
	if err != nil {
		return nil, err
	}
	props, err := apiextensions.GetSchemaForVersion(definition, version)
	if err != nil {
		return nil, err
	}
	if props == nil || props.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("crd: version %s of %s has no schema; add one", version, crd.GetName())
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	var status validation.SchemaValidator
	if of, ok := props.OpenAPIV3Schema.Properties["status"]; ok {
		if status, _, err = validation.NewSchemaValidator(&of); err != nil {
			return nil, err
		}
	}
	preserve := definition.Spec.PreserveUnknownFields != nil && *definition.Spec.PreserveUnknownFields
	return &versionSchema{
		structural: structural, validator: validator, status: status, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit), preserve: preserve,
		openAPI: sync.OnceValues(func() (*spec3.OpenAPI, error) {
			return builder.BuildOpenAPIV3(external, version, builder.Options{IncludeSelectableFields: true})
		}),
	}, nil
}
