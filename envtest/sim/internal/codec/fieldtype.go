// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/openapi"
)

// TypeConverter returns the structure that managedFields of the kind have, in this and in other
// versions. Without a schema, every field is allowed and lists are atomic.
func (c Codec) TypeConverter(others ...Codec) (managedfields.TypeConverter, error) {
	switch {
	case c.Typed && (c.Kind.Kind == "Scale" || slices.Contains(kinds.ReviewGroups, c.Kind.Group)):
		return managedfields.NewDeducedTypeConverter(), nil // client-go has no schema of them
	case c.Typed:
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
func (c Codec) structure(all map[string]*spec.Schema) error {
	if described, ok := c.Schema.(crdschema.OpenAPI); ok {
		doc, err := described.OpenAPI()
		if err != nil {
			return err
		}
		maps.Copy(all, doc.Components.Schemas)
		return nil
	}
	all[openapi.KindModel(c.Kind)] = openapi.GenericSchema(c.Kind)
	if all[openapi.MetaModel] != nil {
		return nil
	}
	all[openapi.MetaModel] = &spec.Schema{}
	return json.Unmarshal([]byte(metaSchema), all[openapi.MetaModel])
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

// New implements runtime.ObjectCreater with an object before its creation.
func (c Codec) New(schema.GroupVersionKind) (runtime.Object, error) { return c.Empty() }

// OneVersion defaults nothing, and converts by setting the version.
type OneVersion struct{}

// Default implements runtime.ObjectDefaulter.
func (OneVersion) Default(runtime.Object) {}

// Convert implements runtime.ObjectConvertor.
func (OneVersion) Convert(in, out, _ any) error {
	return runtime.NewNotRegisteredErrForTarget("sim", reflect.TypeOf(in), nil)
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (OneVersion) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	has := in.GetObjectKind().GroupVersionKind()
	want, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{has})
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("sim", reflect.TypeOf(in), target)
	}
	if want == has {
		return in, nil
	}
	in = in.DeepCopyObject()
	in.GetObjectKind().SetGroupVersionKind(want)
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (OneVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
