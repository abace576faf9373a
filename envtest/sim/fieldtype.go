// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// OpenAPI is a Schema that describes its kind to server-side apply.
type OpenAPI interface {
	// OpenAPI returns the JSON of the kind's openAPIV3Schema.
	OpenAPI() []byte
}

// typeConverter returns the structure that managedFields of the kind have, in this and in other
// versions. Without a schema, every field is allowed and lists are atomic.
func (c codec) typeConverter(others ...codec) (managedfields.TypeConverter, error) {
	if c.typed {
		return applyconfigurations.NewTypeConverter(scheme.Scheme), nil
	}
	var meta spec.Schema
	if err := json.Unmarshal([]byte(metaSchema), &meta); err != nil {
		return nil, err
	}
	all := map[string]*spec.Schema{"meta": &meta}
	for _, one := range append(others, c) {
		kind, err := one.structure()
		if err != nil {
			return nil, err
		}
		all["kind "+one.kind.Version] = kind
	}
	return managedfields.NewTypeConverter(all, false)
}

// structure returns the structure of a custom kind.
func (c codec) structure() (*spec.Schema, error) {
	var kind spec.Schema
	if described, ok := c.schema.(OpenAPI); ok {
		if err := json.Unmarshal(described.OpenAPI(), &kind); err != nil {
			return nil, err
		}
	} else {
		kind.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	}
	kind.Type = spec.StringOrArray{"object"}
	if kind.Properties == nil {
		kind.Properties = map[string]spec.Schema{}
	}
	kind.Properties["apiVersion"] = *spec.StringProperty()
	kind.Properties["kind"] = *spec.StringProperty()
	kind.Properties["metadata"] = *spec.RefProperty("#/definitions/meta")
	kind.AddExtension("x-kubernetes-group-version-kind", []any{
		map[string]any{"group": c.kind.Group, "version": c.kind.Version, "kind": c.kind.Kind},
	})
	return &kind, nil
}

// metaSchema is the structure of ObjectMeta, as far as it matters to managedFields.
const metaSchema = `{"type": "object", "properties": {
	"name": {"type": "string"}, "generateName": {"type": "string"}, "namespace": {"type": "string"},
	"selfLink": {"type": "string"}, "uid": {"type": "string"}, "resourceVersion": {"type": "string"},
	"generation": {"type": "integer", "format": "int64"},
	"creationTimestamp": {"type": "string", "format": "date-time"},
	"deletionTimestamp": {"type": "string", "format": "date-time"},
	"deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
	"labels": {"type": "object", "additionalProperties": {"type": "string"}},
	"annotations": {"type": "object", "additionalProperties": {"type": "string"}},
	"finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
	"ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
		"items": {"type": "object", "x-kubernetes-map-type": "atomic", "required": ["uid"], "properties": {
			"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"}, "uid": {"type": "string"},
			"controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"}}}},
	"managedFields": {"type": "array", "x-kubernetes-list-type": "atomic",
		"items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
}}`
