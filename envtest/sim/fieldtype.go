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

// typeConverter returns the structure that managedFields of the kind have. Without a schema, every
// field is allowed and lists are atomic.
func (c codec) typeConverter() (managedfields.TypeConverter, error) {
	// client-go does not know the structure of what it does not apply.
	if model := kindModel(c.kind); c.typed && (isReviewGroup(c.kind.Group) || c.kind.Kind == "Scale") {
		schemas := map[string]*spec.Schema{}
		complete(schemas, c.kind.GroupVersion(), model)
		return managedfields.NewTypeConverter(schemas, false)
	}
	if c.typed {
		return applyconfigurations.NewTypeConverter(scheme.Scheme), nil
	}
	if described, ok := c.schema.(OpenAPI); ok {
		doc, err := described.OpenAPI()
		if err != nil {
			return nil, err
		}
		return managedfields.NewTypeConverter(doc.Components.Schemas, false)
	}
	kind := genericSchema(c.kind)
	var meta spec.Schema
	if err := json.Unmarshal([]byte(metaSchema), &meta); err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(map[string]*spec.Schema{kindModel(c.kind): kind, metaModel: &meta}, false)
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
