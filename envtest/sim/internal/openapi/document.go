// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

const kindExtension = "x-kubernetes-group-version-kind"

// Document returns the OpenAPI document of a group version as JSON.
func Document(gv schema.GroupVersion, definitions []*kinds.Definition) ([]byte, error) {
	book := &pathBook{gv: gv, paths: map[string]*spec3.Path{}, models: map[string]bool{}}
	schemas, native := map[string]*spec.Schema{}, false
	doc := &spec3.OpenAPI{Version: "3.0.0", Info: &spec.Info{}, Components: &spec3.Components{Schemas: schemas}}
	doc.Info.Title, doc.Info.Version = "Kubernetes CRD Swagger", "v0.1.0"
	for _, t := range definitions {
		if own, ok := t.Schema.(crdschema.OpenAPI); ok {
			described, err := own.OpenAPI()
			if err != nil {
				return nil, err
			}
			doc.Info = described.Info
			maps.Copy(book.paths, described.Paths.Paths)
			maps.Copy(schemas, described.Components.Schemas)
			continue
		}
		if t.Native {
			native = true
			book.index()
			version := kinds.Version()
			doc.Info.Title, doc.Info.Version = "Kubernetes", version.Major+"."+version.Minor
			doc.Components.SecuritySchemes = bearerToken()
		}
		book.resource(t)
		describe(t, schemas)
	}
	complete(schemas, gv, native, slices.Collect(maps.Keys(book.models))...)
	doc.Paths = &spec3.Paths{Paths: book.paths}
	return json.Marshal(doc)
}

func bearerToken() spec3.SecuritySchemes {
	s := &spec3.SecurityScheme{}
	s.Type, s.Name, s.In, s.Description = "apiKey", "authorization", "header", "Bearer Token authentication"
	return spec3.SecuritySchemes{"BearerToken": s}
}

// KindModel returns the name of the schema of a kind.
func KindModel(kind schema.GroupVersionKind) string {
	if t, ok := kinds.Scheme().AllKnownTypes()[kind]; ok {
		return modelName(t)
	}
	switch kind.Group {
	case "apiextensions.k8s.io":
		return "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions." + kind.Version + "." + kind.Kind
	case "apiregistration.k8s.io":
		return "io.k8s.kube-aggregator.pkg.apis.apiregistration." + kind.Version + "." + kind.Kind
	}
	parts := strings.Split(kind.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, kind.Version, kind.Kind), ".")
}

// describe adds the schemas of a kind without a Go type and of its list.
func describe(t *kinds.Definition, schemas map[string]*spec.Schema) {
	if t.BuiltIn {
		return
	}
	model := KindModel(t.GVK())
	schemas[model] = GenericSchema(t.GVK())
	list := (&spec.Schema{}).Typed("object", "").WithRequired("items")
	list.SetProperty("apiVersion", *spec.StringProperty())
	list.SetProperty("kind", *spec.StringProperty())
	list.SetProperty("items", *spec.ArrayProperty(spec.RefSchema(schemaPrefix + model)))
	list.SetProperty("metadata", *spec.RefSchema(schemaPrefix + modelName(reflect.TypeFor[metav1.ListMeta]())))
	listKind := t.GVK()
	listKind.Kind += "List"
	list.AddExtension(kindExtension, kindList(listKind))
	schemas[model+"List"] = list
}

// GenericSchema returns the schema of a kind without one: it has metadata and any other field.
func GenericSchema(kind schema.GroupVersionKind) *spec.Schema {
	s := (&spec.Schema{}).Typed("object", "")
	s.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema(schemaPrefix + MetaModel))
	s.AddExtension(kindExtension, kindList(kind))
	return s
}

func kindList(kinds ...schema.GroupVersionKind) []any {
	var list []any
	for _, k := range kinds {
		list = append(list, map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind})
	}
	return list
}

// complete adds the schemas of Go types by name, and those to which they and the given schemas
// refer.
func complete(schemas map[string]*spec.Schema, gv schema.GroupVersion, native bool, names ...string) {
	known := builtinTypes()
	var add func(name string)
	walker := schemamutation.Walker{
		SchemaCallback: schemamutation.SchemaCallBackNoop,
		RefCallback: func(ref *spec.Ref) *spec.Ref {
			add(strings.TrimPrefix(ref.String(), schemaPrefix))
			return ref
		},
	}
	add = func(name string) {
		if s := known.schemas[name]; s != nil && schemas[name] == nil {
			schemas[name] = known.withKinds(name, gv, native)
			walker.WalkSchema(s)
		}
	}
	for _, s := range slices.Collect(maps.Values(schemas)) {
		walker.WalkSchema(s)
	}
	for _, name := range names {
		add(name)
	}
}

// withKinds returns the schema of a Go type with its kinds. A type of many groups, such as
// DeleteOptions, has the kinds of the core group and of the document's, or of all groups in the
// document of custom kinds.
func (g *goTypes) withKinds(name string, gv schema.GroupVersion, native bool) *spec.Schema {
	t := g.of[name]
	kinds := g.kinds[t]
	if t.PkgPath() == reflect.TypeFor[metav1.Status]().PkgPath() && native {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k schema.GroupVersionKind) bool {
			return k.GroupVersion() != gv && k.GroupVersion() != schema.GroupVersion{Version: "v1"}
		})
		if (name == optionsModel || name == eventModel) && !slices.Contains(kinds, gv.WithKind(t.Name())) {
			kinds = append(kinds, gv.WithKind(t.Name())) // the group is not in client-go's scheme
		}
	}
	if len(kinds) == 0 {
		return g.schemas[name]
	}
	s := *g.schemas[name]
	s.Extensions = maps.Clone(s.Extensions)
	s.AddExtension(kindExtension, kindList(kinds...))
	return &s
}

// Root returns the path of a group version.
func Root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version + "/"
	}
	return "/apis/" + gv.String() + "/"
}
