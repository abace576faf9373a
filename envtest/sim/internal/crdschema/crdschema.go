// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package crdschema has the interfaces through which a sim checks custom objects and evaluates CEL.
// Package envtest/sim/crd, a module of its own, implements them.
package crdschema

import (
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/spec3"
)

// Schemas adds the schemas of CustomResourceDefinitions to a server.
type Schemas interface {
	// Check returns what is wrong with a CustomResourceDefinition, which replaces old; old is nil
	// at creation.
	Check(crd, old *unstructured.Unstructured) field.ErrorList
	// Schema returns the schema of one version of a CustomResourceDefinition.
	Schema(crd *unstructured.Unstructured, version string) (Schema, error)
	// CompileConditions returns a function that reports whether all conditions of a webhook hold
	// for a request. Its error refuses the request. A wrong expression is like one that fails. The
	// failure policy is Fail or Ignore.
	CompileConditions([]admissionregistrationv1.MatchCondition, admissionregistrationv1.FailurePolicyType) func(*admissionv1.AdmissionRequest) (bool, error)
}

// Schema validates, defaults and prunes the objects of a custom kind.
type Schema interface {
	// Default sets defaults and removes unknown fields, in place. It returns an error for each
	// unknown field.
	Default(u *unstructured.Unstructured) []error
	// Validate returns the errors of u, which replaces old; old is nil at creation. The
	// subresource is the request's, such as status, or empty.
	Validate(u, old *unstructured.Unstructured, subresource string) field.ErrorList
}

// OpenAPI is a Schema that describes its kind. The description is published at /openapi/v3, and
// server-side apply uses it.
type OpenAPI interface {
	// OpenAPI returns an OpenAPI v3 document of the kind: its paths and schemas. The schema of the
	// kind itself has the extension x-kubernetes-group-version-kind. The document must not change.
	OpenAPI() (*spec3.OpenAPI, error)
}
