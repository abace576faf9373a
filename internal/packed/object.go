// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"weak"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// Size returns the number of kept bytes, without the record.
func (o *Object) Size() int { return len(o.data) }

// Decode returns the object in its Go form. The caller owns it.
func (o *Object) Decode() (object.Object, error) {
	if d := o.lately(); d != nil {
		return d.object.DeepCopyObject().(object.Object), nil //nolint:forcetypeassert // a copy has the same type
	}
	obj, err := o.codec.decode(&o.record)
	if err != nil {
		o.codec.Intake.Refuse(o, err)
		return nil, err
	}
	return obj, nil
}

// Shared is Decode for callers that do not change the result: it returns the same object to several
// of them, while the garbage collector has not freed it.
func (o *Object) Shared() (object.Object, error) {
	obj, err := o.Indexed()
	if err != nil {
		o.codec.Intake.Refuse(o, err)
	}
	return obj, err
}

// Indexed is Shared for index functions: they run under the store's lock, so Refuse, which may
// read the store, is not called.
func (o *Object) Indexed() (object.Object, error) {
	if d := o.lately(); d != nil {
		return d.object, nil
	}
	obj, err := o.codec.decode(&o.record)
	if err != nil {
		return nil, err
	}
	d := &decoded{obj}
	o.derive(func(to *derived) {
		if to.weak = weak.Make(d); o.codec.keeps.Load() {
			to.kept = d
		}
	})
	return obj, nil
}

// DecodePart returns an object of the Go form with only some fields, the namespace and the name, or
// nil if the fields have the same bytes in another object.
func (o *Object) DecodePart(of []wire.Field, other *Object) (object.Object, error) {
	b := o.codec.part()
	defer o.codec.parts.Put(b)
	b.read(o, of)
	if other != nil {
		second := o.codec.part()
		defer o.codec.parts.Put(second)
		if second.read(other, of); bytes.Equal(second.part, b.part) {
			return nil, nil
		}
	}
	part := b.part
	if o.format != wire.Protobuf {
		part = bytes.Clone(part) // see decode
	}
	obj, err := o.codec.unmarshal(o.format, part)
	if err != nil {
		return nil, err
	}
	obj.SetNamespace(o.namespace)
	obj.SetName(o.GetName())
	return obj, nil
}

// partBuffer has an object's bytes, and a part of them.
type partBuffer struct{ data, part []byte }

func (b *partBuffer) read(o *Object, of []wire.Field) {
	b.data = append(b.data[:0], o.data...)
	b.part = wire.Part(b.part[:0], o.format, b.data, of)
}

func (c *Codec) part() *partBuffer {
	if b, ok := c.parts.Get().(*partBuffer); ok {
		return b
	}
	return &partBuffer{}
}

// values is what one index function returned for an object.
type values struct {
	index string
	found []string
	err   error
	more  *values
}

// Values returns what find returned for the object when it was first asked for this index.
func (o *Object) Values(index string, find func() ([]string, error)) ([]string, error) {
	if v := o.valuesOf(index); v != nil {
		return v.found, v.err
	}
	v := &values{index: index}
	v.found, v.err = find()
	o.derive(func(to *derived) { v.more, to.values = to.values, v })
	return v.found, v.err
}

// HasValues reports whether Values has been called for the index.
func (o *Object) HasValues(index string) bool { return o.valuesOf(index) != nil }

func (o *Object) valuesOf(index string) *values {
	d := o.derived.Load()
	if d == nil {
		return nil
	}
	v := d.values
	for v != nil && v.index != index {
		v = v.more
	}
	return v
}

func (o *Object) lately() *decoded {
	if d := o.derived.Load(); d != nil {
		return d.weak.Value()
	}
	return nil
}

func (o *Object) derive(add func(*derived)) {
	for {
		now, next := o.derived.Load(), derived{}
		if now != nil {
			next = *now
		}
		if add(&next); o.derived.CompareAndSwap(now, &next) {
			return
		}
	}
}

// Prepared returns the result of Intake.Prepare, or o if that has been called for it.
func (o *Object) Prepared() *Object {
	if o.has&isPrepared != 0 {
		return o
	}
	o = o.codec.Intake.Prepare(o)
	o.has |= isPrepared
	return o
}

// DeepCopyObject returns another Object with the same bytes, which never change.
func (o *Object) DeepCopyObject() runtime.Object { return &Object{record: o.record} }

// GetObjectKind returns the kind of the decoded object.
func (o *Object) GetObjectKind() schema.ObjectKind { return kind{o} }

type kind struct{ *Object }

func (k kind) GroupVersionKind() schema.GroupVersionKind { return k.codec.Kind }

// SetGroupVersionKind does nothing: an informer has objects of one kind.
func (k kind) SetGroupVersionKind(schema.GroupVersionKind) {}

// Repack packs obj, the object after a change, in the same format.
func (o *Object) Repack(obj object.Object) (*Object, error) { return o.codec.Pack(o.format, obj) }
