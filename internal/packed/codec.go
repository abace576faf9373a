// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// Intake is what a Codec needs of its informer. Package cache implements it. It must be safe for
// concurrent use.
type Intake interface {
	// Intern returns one string for all equal ones, for namespaces. The result is no part of a
	// longer string.
	Intern(s string) string
	// Refuse is called for each object that cannot be decoded, perhaps more than once.
	Refuse(o object.Object, err error)
}

// Codec makes and decodes the objects of one informer. Set the exported fields before its first
// use. It is safe for concurrent use.
type Codec struct {
	// Decoded has the kind and the Go form of the objects.
	storage.Decoded
	// KeepManagedFields keeps managedFields in the bytes.
	KeepManagedFields bool
	// Intake is what the objects are for. Required.
	Intake Intake

	decodes atomic.Int64
	keeps   atomic.Bool
	buffers sync.Pool // of *[]byte, for decode
	parts   sync.Pool // of *partBuffer, for DecodePart
}

// Object is a packed object. Except for its setters, it is safe for concurrent use.
type Object struct {
	record

	derived atomic.Pointer[derived]
}

// derived is what was computed from an object. It is replaced, never changed.
type derived struct {
	weak   weak.Pointer[decoded] // what Shared decoded last, until the garbage collector frees it
	kept   *decoded              // nil unless Codec.Keep was called
	values *values               // of indexes
}

// record takes 120 bytes. Most programs keep many small objects, so each field counts.
type record struct {
	codec      *Codec
	data       string
	name       string // this is a part of data, as are uid and version: see GetName
	namespace  string // shared by many objects
	uid        string
	version    string
	generation int64

	metaStart, metaEnd uint32 // the ObjectMeta in data
	format             wire.Format
	has                fields
}

// fields are optional fields of the metadata, with a bit each.
type fields uint8

const (
	hasLabels fields = 1 << iota
	hasAnnotations
	hasOwners
	hasFinalizers
	hasDeletion
)

type decoded struct{ object object.Object }

// Example implements storage.Codec.
func (c *Codec) Example() object.Object { return &Object{record: record{codec: c}} }

// Decodes implements storage.Codec.
func (c *Codec) Decodes() int64 { return c.decodes.Load() }

// Keep implements storage.Codec.
func (c *Codec) Keep() { c.keeps.Store(true) }

// Read returns an *Object. Bytes that cannot be packed as they are, for example because JSON has a
// key twice, are decoded and encoded again. The error comes from the kind's decoder.
func (c *Codec) Read(f wire.Format, data []byte) (object.Object, error) {
	if o, err := c.compact(f, data); err == nil {
		return o, nil
	}
	obj, err := c.Decoded.Read(f, data)
	if err != nil {
		return nil, err
	}
	if obj.GetName() == "" {
		return nil, errors.New("it cannot be decoded: it has no name")
	}
	o, err := c.Pack(f, obj)
	if err != nil {
		return nil, err // not a nil *Object
	}
	return o, nil
}

func (c *Codec) compact(f wire.Format, data []byte) (*Object, error) {
	p, err := wire.Compact(f, data, c.KeepManagedFields)
	if err != nil {
		return nil, err
	}
	if err := c.Check(p.APIVersion, p.Kind); err != nil {
		return nil, err
	}
	o := &Object{record: record{
		codec: c, data: p.Data, name: p.Name, namespace: c.Intake.Intern(p.Namespace), uid: p.UID, version: p.ResourceVersion,
		generation: p.Generation, format: f,
		metaStart: uint32(p.MetaStart), metaEnd: uint32(p.MetaEnd), //nolint:gosec // far below 4 GiB
	}}
	o.note(hasLabels, p.Labels)
	o.note(hasAnnotations, p.Annotations)
	o.note(hasOwners, p.Owners)
	o.note(hasFinalizers, p.Finalizers)
	o.note(hasDeletion, p.Deleting)
	return o, nil
}

func (o *Object) note(has fields, there bool) {
	if there {
		o.has |= has
	}
}

// Pack packs a decoded object in a format that its type supports: protobuf or JSON.
func (c *Codec) Pack(f wire.Format, obj object.Object) (*Object, error) {
	var data []byte
	var err error
	if m, ok := obj.(interface{ Marshal() ([]byte, error) }); ok && f == wire.Protobuf {
		data, err = m.Marshal()
	} else {
		f = wire.JSON
		data, err = json.Marshal(obj)
	}
	if err != nil {
		return nil, err
	}
	return c.compact(f, data)
}

func (c *Codec) decode(r *record) (object.Object, error) {
	c.decodes.Add(1)
	// Generated protobuf code keeps no part of its input; a method UnmarshalJSON may.
	var data []byte
	if r.format == wire.Protobuf {
		buffer, _ := c.buffers.Get().(*[]byte)
		if buffer == nil {
			buffer = new([]byte)
		}
		defer c.buffers.Put(buffer)
		*buffer = append((*buffer)[:0], r.data...)
		data = *buffer
	} else {
		data = []byte(r.data)
	}
	obj, err := c.Decode(r.format, data)
	if err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != r.version { // see SetResourceVersion
		obj.SetResourceVersion(r.version)
	}
	return obj, nil
}
