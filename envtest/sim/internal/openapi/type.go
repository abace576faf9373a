// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gvschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

const schemaPrefix = "#/components/schemas/"

// goTypes describes Go types of the Kubernetes API. The types have the names, fields, and
// descriptions; lists, maps and defaults come from the structure behind client-go's managedFields.
type goTypes struct {
	structure *schema.Schema
	kinds     map[reflect.Type][]gvschema.GroupVersionKind
	schemas   map[string]*spec.Schema
	of        map[string]reflect.Type
}

// builtinTypes describes the types of client-go's scheme.
var builtinTypes = sync.OnceValue(func() *goTypes {
	g := &goTypes{
		structure: &schema.Schema{}, kinds: map[reflect.Type][]gvschema.GroupVersionKind{},
		schemas: map[string]*spec.Schema{}, of: map[string]reflect.Type{},
	}
	if parser, err := kinds.SchemaParser(); err == nil {
		g.structure = &parser.Schema
	}
	known := kinds.Scheme().AllKnownTypes()
	for _, gvk := range slices.SortedFunc(maps.Keys(known), func(a, b gvschema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		if gvk.Version != runtime.APIVersionInternal {
			g.kinds[known[gvk]] = append(g.kinds[known[gvk]], gvk)
		}
	}
	for t := range g.kinds {
		g.define(t)
	}
	g.define(reflect.TypeFor[metav1.Patch]())
	return g
})

// modelName returns the name of a type in OpenAPI, or "".
func modelName(t reflect.Type) string {
	if named, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	return ""
}

// define adds the schema of a type with a name, and of all types that it refers to.
func (g *goTypes) define(t reflect.Type) {
	name := modelName(t)
	if name == "" || g.schemas[name] != nil {
		return
	}
	s := &spec.Schema{}
	g.schemas[name], g.of[name] = s, t // before its fields: types may be recursive
	s.Description = descriptions(t)[""]
	if scalar, ok := scalarSchema(t); ok {
		scalar.Description = s.Description
		*s = *scalar
		return
	}
	s.Type = spec.StringOrArray{"object"}
	g.addFields(s, t, name)
	if structure, ok := g.structure.FindNamedType(name); ok && structure.Map != nil && structure.Map.ElementRelationship == schema.Atomic {
		s.AddExtension("x-kubernetes-map-type", "atomic")
	}
}

// scalarSchema returns the schema of a type that has a JSON form of its own.
func scalarSchema(t reflect.Type) (*spec.Schema, bool) {
	scalar, ok := reflect.New(t).Interface().(interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	})
	if !ok {
		return nil, false
	}
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Format: scalar.OpenAPISchemaFormat()}}
	if several, ok := scalar.(interface{ OpenAPIV3OneOfTypes() []string }); ok {
		for _, one := range several.OpenAPIV3OneOfTypes() {
			s.OneOf = append(s.OneOf, spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{one}}})
		}
		return s, true
	}
	s.Type = scalar.OpenAPISchemaType()
	return s, true
}

// descriptions returns the descriptions of a type, at "", and of its fields.
func descriptions(t reflect.Type) map[string]string {
	if documented, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return documented.SwaggerDoc()
	}
	return nil
}

// addFields adds the fields of a struct to the schema of the named type.
func (g *goTypes) addFields(s *spec.Schema, t reflect.Type, name string) {
	described := descriptions(t)
	for f := range t.Fields() {
		field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if field == "" && f.Anonymous {
			g.addFields(s, f.Type, name)
			continue
		}
		if field == "" || field == "-" {
			continue
		}
		optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		property := alone(g.property(f.Type, optional), described[field])
		g.structured(property, f.Type, name, field)
		for tag, extension := range patchTags {
			if value := f.Tag.Get(tag); value != "" {
				property.AddExtension(extension, value)
			}
		}
		s.SetProperty(field, *property)
		if !optional {
			s.Required = append(s.Required, field)
		}
	}
}

// patchTags are the struct tags for strategic merge patches, and their names in OpenAPI.
var patchTags = map[string]string{"patchStrategy": "x-kubernetes-patch-strategy", "patchMergeKey": "x-kubernetes-patch-merge-key"}

// property returns the schema of a field. If it is not optional, its zero value is
// its default.
func (g *goTypes) property(t reflect.Type, optional bool) *spec.Schema {
	switch kind := t.Kind(); {
	case kind == reflect.Pointer:
		return g.property(t.Elem(), true).WithDefault(nil)
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return spec.StrFmtProperty("byte")
	case kind == reflect.Slice:
		return spec.ArrayProperty(g.element(t.Elem()))
	case kind == reflect.Map:
		return spec.MapProperty(g.element(t.Elem()))
	case kind == reflect.Struct:
		return g.reference(t)
	default:
		s := &spec.Schema{}
		s.Typed(scalarTypes[kind][0], scalarTypes[kind][1])
		if !optional {
			s.WithDefault(reflect.Zero(t).Interface())
		}
		return s
	}
}

// element returns the schema of the elements of a list or map, which have no default.
func (g *goTypes) element(t reflect.Type) *spec.Schema {
	return alone(g.property(t, true).WithDefault(nil), "")
}

// alone describes a schema. A reference without a default and a description stands alone.
func alone(s *spec.Schema, description string) *spec.Schema {
	if s.Default == nil && len(s.AllOf) == 1 && description == "" {
		return &s.AllOf[0]
	}
	s.Description = description
	return s
}

// scalarTypes are type and format by kind.
var scalarTypes = map[reflect.Kind][2]string{
	reflect.String: {"string", ""}, reflect.Bool: {"boolean", ""},
	reflect.Int: {"integer", "int32"}, reflect.Int32: {"integer", "int32"}, reflect.Int64: {"integer", "int64"},
	reflect.Uint8: {"integer", "byte"}, reflect.Uint32: {"integer", "int64"}, reflect.Uint64: {"integer", "int64"},
	reflect.Float32: {"number", "float"}, reflect.Float64: {"number", "double"},
}

// reference returns a reference to a struct. A struct without a JSON form of its own defaults to
// an empty object.
func (g *goTypes) reference(t reflect.Type) *spec.Schema {
	name := modelName(t)
	if name == "" {
		return spec.MapProperty(nil)
	}
	g.define(t)
	ref := *spec.RefSchema(schemaPrefix + name)
	s := &spec.Schema{SchemaProps: spec.SchemaProps{AllOf: []spec.Schema{ref}}}
	if _, scalar := scalarSchema(t); !scalar && t != reflect.TypeFor[runtime.RawExtension]() {
		s.Default = map[string]any{}
	}
	return s
}

// structured adds what server-side apply needs to know of a field: the kinds of its lists and maps,
// and its default.
func (g *goTypes) structured(property *spec.Schema, t reflect.Type, name, field string) {
	if name == scaleSpecModel && field == "replicas" { // an apply of a scale has no structure
		property.Default = 0
	}
	of, ok := g.structure.FindNamedType(name)
	// Types that nothing applies have atomic lists.
	if !ok && t.Kind() == reflect.Slice && t.Name() == "" && field != "items" {
		property.AddExtension("x-kubernetes-list-type", "atomic")
	}
	if !ok || of.Map == nil {
		return
	}
	known, ok := of.FindField(field)
	if !ok {
		return
	}
	if known.Default != nil {
		property.Default = known.Default
	}
	atom, ok := g.structure.Resolve(known.Type)
	if !ok {
		return
	}
	switch kind := t.Kind(); {
	case kind == reflect.Slice && atom.List != nil:
		addListType(property, atom.List)
	case kind == reflect.Map && atom.Map != nil && atom.Map.ElementRelationship == schema.Atomic,
		known.Type.ElementRelationship != nil && *known.Type.ElementRelationship == schema.Atomic:
		property.AddExtension("x-kubernetes-map-type", "atomic")
	}
}

func addListType(property *spec.Schema, list *schema.List) {
	kind := "atomic"
	if list.ElementRelationship == schema.Associative {
		kind = "set"
		if len(list.Keys) > 0 {
			kind = "map"
			property.AddExtension("x-kubernetes-list-map-keys", list.Keys)
		}
	}
	property.AddExtension("x-kubernetes-list-type", kind)
}
