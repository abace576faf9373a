// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

const (
	openAPIPath   = "/openapi/v3"
	kindExtension = "x-kubernetes-group-version-kind"

	openAPIProtobuf    = "com.github.proto-openapi.spec.v3.v1.0+protobuf"
	openAPIProtobufOld = "com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// openAPILocked answers a request below /openapi/v3: the list of documents, or one of them.
func (s *Server) openAPILocked(r *Request) (*http.Response, error) {
	asked := strings.Trim(strings.TrimPrefix(r.http.URL.Path, openAPIPath), "/")
	list := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for _, g := range s.groupsLocked() {
		for _, v := range g.versions {
			gv := schema.GroupVersion{Group: g.name, Version: v.name}
			path := strings.Trim((&pathBook{gv: gv}).root(), "/")
			if asked != "" && asked != path {
				continue
			}
			data, err := document(gv, v.tables)
			if err != nil {
				return nil, err
			}
			hash := fmt.Sprintf("%X", sha256.Sum256(data))
			url := openAPIPath + "/" + path + "?hash=" + hash
			if asked == path {
				return r.answerOpenAPI(data, hash, url)
			}
			list.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: url}
		}
	}
	if asked != "" {
		resp := r.respond(http.StatusNotFound, "", nil)
		resp.Header.Del("Content-Type")
		return resp, nil
	}
	data, err := json.Marshal(list)
	// The real server guesses the type.
	return r.respond(http.StatusOK, "text/plain; charset=utf-8", data), err
}

// answerOpenAPI answers with a document, whose current address is url.
func (r *Request) answerOpenAPI(data []byte, hash, url string) (*http.Response, error) {
	if asked := r.Query.Get("hash"); asked != "" && asked != hash {
		resp := r.respond(http.StatusMovedPermanently, "text/html; charset=utf-8", nil)
		resp.Header.Set("Location", url)
		return resp, nil
	}
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, subtype := range []string{"json", openAPIProtobuf, openAPIProtobufOld} {
			if clause.Type != "application" && clause.Type != "*" || clause.SubType != subtype && clause.SubType != "*" {
				continue
			}
			media := runtime.ContentTypeJSON
			if subtype != "json" {
				var err error
				if data, err = handler3.ToV3ProtoBinary(data); err != nil {
					return nil, err
				}
				media = "application/" + openAPIProtobuf
			}
			resp := r.respond(http.StatusOK, media, data)
			resp.Header.Set("Etag", strconv.Quote(hash))
			resp.Header.Set("Vary", "Accept")
			return resp, nil
		}
	}
	return r.respond(http.StatusNotAcceptable, "text/plain; charset=utf-8", nil), nil
}

// answerOpenAPIV2 answers with a document without paths. kubectl reads it about a kind that is not
// served, and then says so.
func (r *Request) answerOpenAPIV2() *http.Response {
	if strings.Contains(r.Header.Get("Accept"), "protobuf") {
		return r.respond(http.StatusOK, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", nil)
	}
	info := fmt.Sprintf(`{"swagger":"2.0","info":{"title":"Kubernetes","version":%q},"paths":{}}`, serverVersion().GitVersion)
	return r.respond(http.StatusOK, runtime.ContentTypeJSON, []byte(info))
}

// document returns the OpenAPI document of a group version as JSON.
func document(gv schema.GroupVersion, tables []*table) ([]byte, error) {
	book := &pathBook{gv: gv, paths: map[string]*spec3.Path{}, models: map[string]bool{}}
	schemas, native := map[string]*spec.Schema{}, false
	doc := &spec3.OpenAPI{Version: "3.0.0", Info: &spec.Info{}, Components: &spec3.Components{Schemas: schemas}}
	doc.Info.Title, doc.Info.Version = "Kubernetes CRD Swagger", "v0.1.0"
	for _, t := range tables {
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
			version := serverVersion()
			doc.Info.Title, doc.Info.Version = "Kubernetes", version.Major+"."+version.Minor
			doc.Components.SecuritySchemes = bearerToken()
		}
		book.resource(t)
		t.describe(schemas)
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

func kindModel(kind schema.GroupVersionKind) string {
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
func (t *table) describe(schemas map[string]*spec.Schema) {
	if t.BuiltIn {
		return
	}
	model := kindModel(t.GVK())
	schemas[model] = genericSchema(t.GVK())
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

// genericSchema returns the schema of a kind without one: it has metadata and any other field.
func genericSchema(kind schema.GroupVersionKind) *spec.Schema {
	s := (&spec.Schema{}).Typed("object", "")
	s.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema(schemaPrefix + metaModel))
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
