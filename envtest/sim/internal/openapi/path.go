// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// endpoint is one operation of an API, for all kinds.
type endpoint struct {
	action, id   string // such as list, and the beginning of the operation's ID
	method, verb string // of HTTP, and of discovery
	options      []any  // their fields are the parameters
	body, answer string // object, list, or the name of a schema
	codes        []int
}

var (
	// MetaModel is the name of the schema of ObjectMeta.
	MetaModel    = modelName(reflect.TypeFor[metav1.ObjectMeta]())
	statusModel  = modelName(reflect.TypeFor[metav1.Status]())
	optionsModel = modelName(reflect.TypeFor[metav1.DeleteOptions]())
	patchModel   = modelName(reflect.TypeFor[metav1.Patch]())
	eventModel   = modelName(reflect.TypeFor[metav1.WatchEvent]())

	scaleSpecModel = modelName(reflect.TypeFor[autoscalingv1.ScaleSpec]())
)

// endpoints are the operations on collections, objects and subresources.
var endpoints = []endpoint{
	{"list", "list", http.MethodGet, "list", []any{metav1.ListOptions{}}, "", "list", []int{200}},
	{"post", "create", http.MethodPost, "create", []any{metav1.CreateOptions{}}, "object", "object", []int{200, 201, 202}},
	{"deletecollection", "delete", http.MethodDelete, "deletecollection",
		[]any{metav1.DeleteOptions{}, metav1.ListOptions{}}, optionsModel, statusModel, []int{200}},
	{"get", "read", http.MethodGet, "get", nil, "", "object", []int{200}},
	{"put", "replace", http.MethodPut, "update", []any{metav1.UpdateOptions{}}, "object", "object", []int{200, 201}},
	{"delete", "delete", http.MethodDelete, "delete", []any{metav1.DeleteOptions{}}, optionsModel, statusModel, []int{200, 202}},
	{"patch", "patch", http.MethodPatch, "patch", []any{metav1.PatchOptions{}}, patchModel, "object", []int{200, 201}},
	{"watchlist", "watch", http.MethodGet, "watch", []any{metav1.ListOptions{}}, "", eventModel, []int{200}},
	{"watch", "watch", http.MethodGet, "watch", []any{metav1.ListOptions{}}, "", eventModel, []int{200}},
}

// of returns the endpoint as the real server describes it for a kind. It has code of its own for
// custom kinds.
func (e endpoint) of(t *kinds.Definition) endpoint {
	if t.Native {
		return e
	}
	switch e.action {
	case "deletecollection":
		e.options, e.body = []any{metav1.ListOptions{}}, ""
	case "get":
		e.options = []any{metav1.GetOptions{}}
	case "patch":
		e.codes = []int{http.StatusOK}
	}
	return e
}

// pathBook collects the paths of a group version.
type pathBook struct {
	gv     schema.GroupVersion
	paths  map[string]*spec3.Path
	models map[string]bool // the names of the schemas in bodies
}

// index adds the path that lists the resources.
func (b *pathBook) index() {
	o := &spec3.Operation{}
	o.Tags = b.tags()
	o.OperationId = operationID(endpoint{id: "get"}, b.gv, "APIResources")
	o.Responses = b.answers(modelName(reflect.TypeFor[metav1.APIResourceList]()), wire.MediaTypes, http.StatusOK)
	b.paths[Root(b.gv)] = &spec3.Path{PathProps: spec3.PathProps{Get: o}}
}

func (b *pathBook) tags() []string { return []string{groupName(b.gv.Group) + "_" + b.gv.Version} }

type subject struct {
	*kinds.Definition
	kind   schema.GroupVersionKind
	model  string // the schema of the kind
	scope  string // for operation IDs: Namespaced, or empty
	suffix string // for operation IDs: such as Status
}

// resource adds the paths of a resource and of its supported subresources.
func (b *pathBook) resource(t *kinds.Definition) {
	of := subject{Definition: t, kind: t.GVK(), model: KindModel(t.GVK())}
	top, watch := Root(b.gv), Root(b.gv)+"watch/"
	collection := t.Name
	if t.Namespaced {
		of.suffix = "ForAllNamespaces"
		b.add(top+t.Name, of, "list")
		of.suffix = "ListForAllNamespaces"
		b.add(watch+t.Name, of, "watchlist")
		collection, of.scope = "namespaces/{namespace}/"+t.Name, "Namespaced"
	}
	one := collection + "/{name}"
	of.suffix = ""
	b.add(top+collection, of, "list", "post", "deletecollection")
	b.add(top+one, of, "get", "put", "delete", "patch")
	b.add(watch+one, of, "watch")
	of.suffix = "List"
	b.add(watch+collection, of, "watchlist")
	for _, name := range t.Subresources {
		sub, actions := of, []string{"get", "put", "patch"}
		sub.suffix = strings.ToUpper(name[:1]) + name[1:]
		switch name {
		case "status":
		case "finalize":
			actions = []string{"put"}
		case "scale":
			sub.kind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")
		case "eviction":
			sub.kind, actions = policyv1.SchemeGroupVersion.WithKind("Eviction"), []string{"post"}
		case "binding":
			sub.kind, actions = corev1.SchemeGroupVersion.WithKind("Binding"), []string{"post"}
		default:
			continue // not supported
		}
		if sub.kind != of.kind {
			sub.model = KindModel(sub.kind)
		}
		b.add(top+one+"/"+name, sub, actions...)
	}
}

func (b *pathBook) add(path string, of subject, actions ...string) {
	p := &spec3.Path{}
	fields := map[string]**spec3.Operation{
		http.MethodGet: &p.Get, http.MethodPost: &p.Post, http.MethodPut: &p.Put, http.MethodDelete: &p.Delete, http.MethodPatch: &p.Patch,
	}
	subresource := strings.Contains(path, "{name}/")
	for _, e := range endpoints {
		described := of.Native || !strings.HasPrefix(e.action, "watch")
		if slices.Contains(actions, e.action) && described && (subresource || of.Takes(e.verb)) {
			*fields[e.method] = b.operation(e.of(of.Definition), of)
			b.paths[path] = p
		}
	}
	for _, name := range []string{"name", "namespace"} {
		if strings.Contains(path, "{"+name+"}") {
			p.Parameters = append(p.Parameters, parameter(name, "path", "string", ""))
		}
	}
	p.Parameters = append(p.Parameters, parameter("pretty", "query", "string", "If 'true', then the output is pretty printed."))
}

func (b *pathBook) operation(e endpoint, of subject) *spec3.Operation {
	o := &spec3.Operation{}
	o.Tags = b.tags()
	o.OperationId = operationID(e, b.gv, of.scope+of.Kind+of.suffix)
	o.AddExtension("x-kubernetes-action", e.action)
	kind := of.kind
	if !of.Native {
		kind = of.GVK() // also of its scale
	}
	o.AddExtension(kindExtension, kindList(kind)[0])
	for _, options := range e.options {
		o.Parameters = append(o.Parameters, parameters(reflect.TypeOf(options))...)
	}
	if e.action == "deletecollection" && of.Native {
		o.Parameters = slices.DeleteFunc(o.Parameters, func(p *spec3.Parameter) bool { return strings.Contains(strings.ToLower(p.Name), "watch") })
	}
	slices.SortFunc(o.Parameters, func(a, b *spec3.Parameter) int { return strings.Compare(a.Name, b.Name) })
	if e.body != "" {
		o.RequestBody = &spec3.RequestBody{}
		o.RequestBody.Required = e.body != optionsModel
		o.RequestBody.Content = b.contentOf(of.body(e, e.body), bodyTypes(of.Definition, e)...)
	}
	o.Responses = b.answers(of.body(e, e.answer), answerTypes(of.Definition, e), e.codes...)
	return o
}

func (s subject) body(e endpoint, name string) string {
	switch {
	case name == "object", name == statusModel && e.action == "delete" && s.Returned && !s.IsNamespaces():
		return s.model
	case name == "list":
		return s.model + "List"
	}
	return name
}

func (b *pathBook) answers(model string, media []string, codes ...int) *spec3.Responses {
	of := map[int]*spec3.Response{http.StatusUnauthorized: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}}}
	for _, code := range codes {
		of[code] = &spec3.Response{ResponseProps: spec3.ResponseProps{Description: http.StatusText(code), Content: b.contentOf(model, media...)}}
	}
	return &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: of}}
}

func bodyTypes(t *kinds.Definition, e endpoint) []string {
	switch {
	case e.action == "patch" && t.Native:
		return []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}
	case e.action == "patch":
		return []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	case t.Native:
		return []string{"*/*"}
	}
	return []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}
}

func answerTypes(t *kinds.Definition, e endpoint) []string {
	switch {
	case !t.Native:
		return []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}
	case e.verb == "list" || e.verb == "watch":
		return append(slices.Clone(wire.MediaTypes), wire.StreamTypes...)
	}
	return wire.MediaTypes
}

func (b *pathBook) contentOf(model string, media ...string) map[string]*spec3.MediaType {
	b.models[model] = true
	content := map[string]*spec3.MediaType{}
	for _, name := range media {
		content[name] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: spec.RefSchema(schemaPrefix + model)}}
	}
	return content
}

// parameters returns a query parameter for each field of an options type.
func parameters(t reflect.Type) []*spec3.Parameter {
	described := descriptions(t)
	var list []*spec3.Parameter
	for f := range t.Fields() {
		kind := f.Type
		if kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		scalar, ok := scalarTypes[kind.Kind()]
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); ok && name != "" && name != "-" {
			list = append(list, parameter(name, "query", scalar[0], described[name]))
		}
	}
	return list
}

func parameter(name, in, kind, description string) *spec3.Parameter {
	s := (&spec.Schema{}).Typed(kind, "")
	s.UniqueItems = true
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{Name: name, In: in, Required: in == "path", Schema: s, Description: description}}
}

// operationID is the real server's, such as listCoreV1NamespacedPod.
func operationID(e endpoint, gv schema.GroupVersion, rest string) string {
	group := groupName(gv.Group)
	id := e.id + strings.ToUpper(group[:1]) + group[1:] + strings.ToUpper(gv.Version[:1]) + gv.Version[1:]
	if e.action == "deletecollection" {
		id += "Collection"
	}
	return id + rest
}

// groupName returns a group in camel case: rbacAuthorization is rbac.authorization.k8s.io.
func groupName(group string) string {
	if group == "" {
		return "core"
	}
	parts := strings.Split(strings.TrimSuffix(group, ".k8s.io"), ".")
	for i, part := range parts[1:] {
		if part != "" {
			parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return strings.Join(parts, "")
}
