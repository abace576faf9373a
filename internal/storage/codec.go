// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// Codec reads the objects of one informer. It is safe for concurrent use.
type Codec interface {
	// Read reads one object: a protobuf message without its envelope, or JSON. The result does not
	// refer to data.
	Read(f wire.Format, data []byte) (object.Object, error)
	// Check returns an error for an object of another kind. Items of a list may name none.
	Check(apiVersion, kind string) error
	// Example returns an empty object of the type that Read returns.
	Example() object.Object
	// Decodes returns how often a Record was decoded as a whole.
	Decodes() int64
	// Keep makes each Record keep what Shared decodes from now on, for listers that read all
	// objects again and again.
	Keep()
}

// Decoded is the Codec of objects in their Go form.
type Decoded struct {
	// Kind is the kind of the objects.
	Kind schema.GroupVersionKind
	// New returns an empty object of the Go type, such as an *unstructured.Unstructured.
	New func() object.Object
}

// Read implements Codec.
func (c *Decoded) Read(f wire.Format, data []byte) (object.Object, error) {
	if f != wire.Protobuf { // whose generated code keeps no part; a method UnmarshalJSON may
		data = bytes.Clone(data)
	}
	return c.Decode(f, data)
}

// Decode is Read for bytes that the object may refer to.
func (c *Decoded) Decode(f wire.Format, data []byte) (obj object.Object, err error) {
	defer func() {
		if p := recover(); p != nil { // in a method UnmarshalJSON
			obj, err = nil, fmt.Errorf("it cannot be decoded: panic: %v", p)
		}
	}()
	obj = c.New()
	if err := Unmarshal(f, data, obj); err != nil {
		return nil, fmt.Errorf("it cannot be decoded: %w", err)
	}
	if f == wire.Protobuf {
		return obj, nil // the envelope has the kind
	}
	if err := c.Check(obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()); err != nil {
		return nil, err
	}
	switch u := obj.(type) {
	case *unstructured.Unstructured:
		u.SetGroupVersionKind(c.Kind) // items of a list may lack it
	default: // as in client-go, the TypeMeta of typed objects is empty
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, nil
}

// Unmarshal decodes a message or JSON into a value.
func Unmarshal(f wire.Format, data []byte, into any) error {
	if f == wire.JSON {
		if u, ok := into.(*unstructured.Unstructured); ok {
			into = &u.Object
		}
		return utiljson.Unmarshal(data, into)
	}
	m, ok := into.(interface{ Unmarshal(data []byte) error })
	if !ok {
		return fmt.Errorf("%T has no protobuf form", into)
	}
	return m.Unmarshal(data)
}

// Check implements Codec.
func (c *Decoded) Check(apiVersion, kind string) error {
	if kind == "" || kind == c.Kind.Kind && apiVersion == c.Kind.GroupVersion().String() {
		return nil
	}
	return fmt.Errorf("it is a %s of %s, not a %s of %s", kind, apiVersion, c.Kind.Kind, c.Kind.GroupVersion())
}

// Example implements Codec.
func (c *Decoded) Example() object.Object { return c.New() }

// Decodes implements Codec. It returns 0: there are no Records.
func (*Decoded) Decodes() int64 { return 0 }

// Keep implements Codec.
func (*Decoded) Keep() {}
