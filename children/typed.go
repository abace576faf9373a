// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Typed returns an apply configuration with the fields of obj that are set. obj is a pointer to a
// built-in type such as appsv1.Deployment, or to your own API type. Typed leaves out the status and
// the fields of the metadata that the API server sets. The configuration reads obj each time it is
// encoded.
//
// Go does not distinguish a field that is zero from one that is not set. Typed leaves out nil
// pointers, maps and slices, and zero fields with omitempty or omitzero. It also leaves out a
// struct with omitempty if no field of it is left. It sends a pointer to zero. The encoding fails
// if a field is zero that JSON always has, such as a bool without omitempty. The error names all
// such fields. The encoding also fails for an object that was read.
func Typed(obj client.Object) client.ApplyConfiguration {
	c := &typed{ObjectMetaApplyConfiguration: metaac.ObjectMeta()}
	if !argument.IsNil(obj) {
		c.of = obj
		if version, kind := obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind(); kind != "" {
			c.TypeMetaApplyConfiguration = *metaac.TypeMeta().WithKind(kind).WithAPIVersion(version)
		}
		c.WithName(obj.GetName()).WithNamespace(obj.GetNamespace())
	}
	return c
}

type typed struct {
	metaac.TypeMetaApplyConfiguration
	*metaac.ObjectMetaApplyConfiguration

	of client.Object // or nil
}

// MarshalJSON implements json.Marshaler. Its error names each field that must be decided.
func (t *typed) MarshalJSON() ([]byte, error) {
	if t.of == nil {
		return nil, errors.New("children.Typed: the object is nil; give a pointer to an API type")
	}
	v := reflect.ValueOf(t.of)
	if v.Kind() != reflect.Pointer || encodesItself(v.Type()) {
		return nil, fmt.Errorf("children.Typed: a %T encodes itself, so its fields cannot be checked; "+
			"use an apply configuration, such as client.UnstructuredConfiguration", t.of)
	}
	if t.of.GetResourceVersion() != "" || t.of.GetUID() != "" || len(t.of.GetManagedFields()) > 0 {
		return nil, errors.New("children.Typed: the object has a resourceVersion, a uid or managedFields; give only the fields to apply, not an object that was read")
	}
	data, err := json.Marshal(t.of)
	if err != nil {
		return nil, fmt.Errorf("children.Typed: %w", err)
	}
	var content map[string]any
	// Not encoding/json, which would round an int64.
	if err := exactjson.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("children.Typed: %w", err)
	}
	delete(content, "status")
	for _, name := range []string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"} {
		unstructured.RemoveNestedField(content, "metadata", name)
	}
	var p pruning
	p.value(v, content, "")
	if len(p.unset) > 0 {
		return nil, fmt.Errorf("children.Typed: JSON cannot leave out the zero of %s; "+
			"use an apply configuration, or set each field or make it a pointer or omitempty", strings.Join(p.unset, ", "))
	}
	return json.Marshal(content)
}

// pruning removes the fields that are not set from the JSON form of a value.
type pruning struct {
	unset []string // paths of zero fields that may be decisions or not
}

func (p *pruning) value(v reflect.Value, form any, path string) {
	if !v.IsValid() || encodesItself(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		p.value(v.Elem(), form, path)
	case reflect.Slice, reflect.Array:
		list, _ := form.([]any) // bytes are a string
		for i := range list {
			p.value(v.Index(i), list[i], fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		entries, _ := form.(map[string]any)
		for _, k := range v.MapKeys() {
			p.value(v.MapIndex(k), entries[fmt.Sprint(k)], fmt.Sprintf("%s[%v]", path, k))
		}
	case reflect.Struct:
		if fields, ok := form.(map[string]any); ok {
			p.fields(v, fields, path)
		}
	}
}

func (p *pruning) fields(v reflect.Value, fields map[string]any, path string) {
	nilable := []reflect.Kind{reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice}
	for i := range v.NumField() {
		f, in := v.Type().Field(i), v.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && isStruct(f.Type) { // inline
			p.value(in, fields, path)
			continue
		}
		name = cmp.Or(name, f.Name)
		form, encoded := fields[name]
		if !encoded || !f.IsExported() {
			continue
		}
		// JSON has left out zero fields with omitzero.
		optional := strings.Contains(options, "omitempty")
		plain := in.Kind() == reflect.Struct && !encodesItself(in.Type())
		switch {
		case in.IsZero() && (optional || slices.Contains(nilable, in.Kind())):
			delete(fields, name)
		case in.IsZero() && !plain:
			p.unset = append(p.unset, path+"."+name)
		default:
			p.value(in, form, path+"."+name)
			if rest, ok := form.(map[string]any); ok && plain && optional && len(rest) == 0 {
				delete(fields, name)
			}
		}
	}
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// encodesItself reports whether JSON calls a method for the type, as for a resource.Quantity.
func encodesItself(t reflect.Type) bool {
	for _, i := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return true
		}
	}
	return false
}
