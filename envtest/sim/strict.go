// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

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
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// codec reads and writes objects of one kind. Built-in kinds pass through their Go type, as in a
// real API server, which drops unknown fields and zero values.
type codec struct {
	kind   schema.GroupVersionKind
	typed  bool             // a built-in kind
	schema crdschema.Schema // of a custom kind, if it has one
}

func (t *table) codec() codec { return codec{kind: t.GVK(), typed: t.BuiltIn, schema: t.Schema} }

// encode returns the JSON that a real API server has for a stored object.
func (c codec) encode(u *unstructured.Unstructured) ([]byte, error) {
	if !c.typed {
		return jsonvalue.Encode(u.Object)
	}
	obj, err := c.object(u)
	if err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}

// object returns a stored object of a built-in kind as its Go type.
func (c codec) object(u *unstructured.Unstructured) (runtime.Object, error) {
	obj, err := kinds.Scheme().New(c.kind)
	if err != nil {
		return nil, err
	}
	return obj, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
}

// stored returns a built-in object in the form in which it is stored, with defaults.
func (c codec) stored(obj runtime.Object) (*unstructured.Unstructured, error) {
	setDefaults(obj)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(c.kind)
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

// empty returns an object before its creation. A built-in one has the fields that are never absent.
func (c codec) empty() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if c.typed {
		obj, err := kinds.Scheme().New(c.kind)
		if err != nil {
			return nil, err
		}
		if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
			return nil, err
		}
	}
	u.SetGroupVersionKind(c.kind)
	return u, nil
}

// normal returns an object in the form in which it is stored.
func (c codec) normal(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !c.typed {
		if c.schema != nil {
			c.schema.Default(u)
		}
		_, err := coerceMetadata(u)
		return u, err
	}
	obj, err := c.object(u)
	if err != nil {
		return nil, err
	}
	return c.stored(obj)
}

// decode reads an object. It returns the kind in the data and, if strict is set, the unknown and
// duplicate fields.
func (c codec) decode(mediaType string, data []byte, strict bool) (*unstructured.Unstructured, *schema.GroupVersionKind, []error, error) {
	if !c.typed {
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
	obj, kind, err := serializer.Decode(data, &c.kind, nil)
	var fields []error
	if s, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		fields, err = s.Errors(), nil
	}
	if err != nil {
		return nil, kind, nil, err
	}
	if kind.Kind != c.kind.Kind {
		into := strings.Split(c.kind.Group, ".")[0]
		if into == "" {
			into = "core"
		}
		return nil, kind, nil, fmt.Errorf("converting (%s) to (%s.%s): unknown conversion", reflect.TypeOf(obj).Elem(), into, c.kind.Kind)
	}
	u, err := c.stored(obj)
	return u, kind, fields, err
}

// decodeCustom reads an object of a kind that has no Go type.
func (c codec) decodeCustom(mediaType string, data []byte, strict bool) (*unstructured.Unstructured, *schema.GroupVersionKind, []error, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(c.kind)
	serializer := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory,
		unstructuredscheme.NewUnstructuredCreator(), unstructuredscheme.NewUnstructuredObjectTyper(),
		jsonserializer.SerializerOptions{Yaml: mediaType == runtime.ContentTypeYAML, Strict: strict})
	_, kind, err := serializer.Decode(data, &c.kind, u)
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
	if c.schema != nil && kind.GroupKind() == c.kind.GroupKind() {
		unknown = append(unknown, c.schema.Default(u)...)
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

// warnAll adds a warning for each unknown or duplicate field.
func (r *Request) warnAll(fields []error) {
	for _, e := range fields {
		text := e.Error()
		for _, prefix := range []string{"error converting YAML to JSON: yaml: unmarshal errors:\n", "yaml: unmarshal errors:\n"} {
			text = strings.TrimPrefix(text, prefix)
		}
		for _, line := range strings.Split(text, "\n") {
			r.warn(strings.TrimSpace(line))
		}
	}
}
