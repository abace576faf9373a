// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// typeConverter returns the structure that managedFields of the kind have, in this and in other
// versions. Without a schema, every field is allowed and lists are atomic.
func (c codec) typeConverter(others ...codec) (managedfields.TypeConverter, error) {
	switch {
	case c.typed && (c.kind.Kind == "Scale" || slices.Contains(reviewGroups, c.kind.Group)):
		return managedfields.NewDeducedTypeConverter(), nil // client-go has no schema of them
	case c.typed:
		types, err := kinds.SchemaParser()
		if err != nil {
			return nil, err
		}
		return managedfields.NewSchemeTypeConverter(kinds.Scheme(), types), nil
	}
	all := map[string]*spec.Schema{}
	for _, one := range append(others, c) {
		if err := one.structure(all); err != nil {
			return nil, err
		}
	}
	return managedfields.NewTypeConverter(all, false)
}

// structure adds the structure of a custom kind to all.
func (c codec) structure(all map[string]*spec.Schema) error {
	if described, ok := c.schema.(crdschema.OpenAPI); ok {
		doc, err := described.OpenAPI()
		if err != nil {
			return err
		}
		maps.Copy(all, doc.Components.Schemas)
		return nil
	}
	all[kindModel(c.kind)] = genericSchema(c.kind)
	if all[metaModel] != nil {
		return nil
	}
	all[metaModel] = &spec.Schema{}
	return json.Unmarshal([]byte(metaSchema), all[metaModel])
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
