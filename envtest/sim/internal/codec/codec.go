// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

// Codec reads and writes objects of one kind. Built-in kinds pass through their Go type, as in a
// real API server, which drops unknown fields and zero values.
type Codec struct {
	Kind   schema.GroupVersionKind
	Typed  bool             // a built-in kind
	Schema crdschema.Schema // of a custom kind, if it has one
}

// Encode returns the JSON that a real API server has for a stored object.
func (c Codec) Encode(u *unstructured.Unstructured) ([]byte, error) {
	if !c.Typed {
		return jsonvalue.Encode(u.Object)
	}
	obj, err := c.object(u)
	if err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}

// object returns a stored object of a built-in kind as its Go type.
func (c Codec) object(u *unstructured.Unstructured) (runtime.Object, error) {
	obj, err := kinds.Scheme().New(c.Kind)
	if err != nil {
		return nil, err
	}
	return obj, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
}

// Stored returns a built-in object in the form in which it is stored, with defaults.
func (c Codec) Stored(obj runtime.Object) (*unstructured.Unstructured, error) {
	rules.SetDefaults(obj)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(c.Kind)
	if o, ok := obj.(metav1.Object); ok {
		keepReset(u, o.GetManagedFields())
	}
	return u, nil
}

// keepReset gives u an empty list of managedFields if the client sent one: it resets them. A
// conversion drops it.
func keepReset(u *unstructured.Unstructured, sent []metav1.ManagedFieldsEntry) {
	if sent != nil && len(sent) == 0 {
		_ = unstructured.SetNestedSlice(u.Object, []any{}, "metadata", "managedFields")
	}
}

// Empty returns an object before its creation. A built-in one has the fields that are never absent.
func (c Codec) Empty() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if c.Typed {
		obj, err := kinds.Scheme().New(c.Kind)
		if err != nil {
			return nil, err
		}
		if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
			return nil, err
		}
	}
	u.SetGroupVersionKind(c.Kind)
	return u, nil
}

// Normal returns an object in the form in which it is stored.
func (c Codec) Normal(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !c.Typed {
		if c.Schema != nil {
			c.Schema.Default(u)
		}
		_, err := coerceMetadata(u)
		return u, err
	}
	obj, err := c.object(u)
	if err != nil {
		return nil, err
	}
	return c.Stored(obj)
}

// Decode reads an object. It returns the kind in the data and, if strict is set, the unknown and
// duplicate fields.
func (c Codec) Decode(mediaType string, data []byte, strict bool) (*unstructured.Unstructured, *schema.GroupVersionKind, []error, error) {
	if !c.Typed {
		return c.decodeCustom(mediaType, data, strict)
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, nil, nil, fmt.Errorf("sim does not read %s", mediaType)
	}
	serializer := info.Serializer
	if strict {
		serializer = info.StrictSerializer
	}
	obj, kind, err := serializer.Decode(data, &c.Kind, nil)
	var fields []error
	if s, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		fields, err = s.Errors(), nil
	}
	if err != nil {
		return nil, kind, nil, err
	}
	if kind.Kind != c.Kind.Kind {
		into := strings.Split(c.Kind.Group, ".")[0]
		if into == "" {
			into = "core"
		}
		return nil, kind, nil, fmt.Errorf("converting (%s) to (%s.%s): unknown conversion", reflect.TypeOf(obj).Elem(), into, c.Kind.Kind)
	}
	u, err := c.Stored(obj)
	return u, kind, fields, err
}

// decodeCustom reads an object of a kind that has no Go type.
func (c Codec) decodeCustom(mediaType string, data []byte, strict bool) (*unstructured.Unstructured, *schema.GroupVersionKind, []error, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(c.Kind)
	serializer := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory,
		unstructuredscheme.NewUnstructuredCreator(), unstructuredscheme.NewUnstructuredObjectTyper(),
		jsonserializer.SerializerOptions{Yaml: mediaType == runtime.ContentTypeYAML, Strict: strict})
	_, kind, err := serializer.Decode(data, &c.Kind, u)
	var fields []error
	if s, ok := runtime.AsStrictDecodingError(err); ok {
		fields, err = s.Errors(), nil
	}
	if err != nil {
		return nil, kind, nil, err
	}
	unknown, err := coerceMetadata(u)
	if err != nil {
		return nil, kind, nil, err
	}
	if c.Schema != nil && kind.GroupKind() == c.Kind.GroupKind() {
		unknown = append(unknown, c.Schema.Default(u)...)
	}
	if strict {
		fields = append(fields, unknown...)
	}
	return u, kind, fields, nil
}

// coerceMetadata passes an object's metadata through ObjectMeta, which drops unknown fields. It
// returns those.
func coerceMetadata(u *unstructured.Unstructured) ([]error, error) {
	metadata, ok := u.Object["metadata"]
	if !ok {
		return nil, nil
	}
	data, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	var typed metav1.ObjectMeta
	strict, err := kjson.UnmarshalStrict(data, &typed)
	if err != nil {
		return nil, err
	}
	var unknown []error
	for _, e := range strict {
		if f, ok := e.(kjson.FieldError); ok { //nolint:errorlint // UnmarshalStrict does not wrap
			unknown = append(unknown, fmt.Errorf("unknown field %q", "metadata."+f.FieldPath()))
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if err != nil {
		return nil, err
	}
	u.Object["metadata"] = content
	keepReset(u, typed.ManagedFields)
	return unknown, nil
}

// normal returns a copy of an object in the form in which its kind is stored. A built-in kind has
// the form of its Go type, another one is JSON with integers.
func normal(of kinds.Resource, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if c := (Codec{Kind: of.GVK(), Typed: kinds.Scheme().Recognizes(of.GVK())}); c.Typed {
		return c.Normal(u)
	}
	data, err := utiljson.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	copied := &unstructured.Unstructured{}
	return copied, utiljson.Unmarshal(data, &copied.Object)
}

// FromObject converts an API object to its stored form.
func FromObject(obj metav1.Object, in kinds.Resource) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	if stored, err := normal(in, u); err == nil {
		u = stored
	} else { // stored as it is: tests want broken objects, too
		u = u.DeepCopy()
	}
	u.SetAPIVersion(in.GV().String())
	u.SetKind(in.Kind)
	switch {
	case in.Namespaced && u.GetNamespace() == "":
		return nil, fmt.Errorf("sim: %s %q has no namespace; set metadata.namespace", in.Kind, u.GetName())
	case !in.Namespaced && u.GetNamespace() != "":
		return nil, fmt.Errorf("sim: %s %q is in namespace %q, but the kind is cluster-scoped; remove metadata.namespace",
			in.Kind, u.GetName(), u.GetNamespace())
	}
	return u, nil
}
