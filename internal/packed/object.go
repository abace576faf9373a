// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"weak"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

var _ storage.Record = (*Object)(nil)

// Size returns the number of kept bytes, without the record.
func (o *Object) Size() int { return len(o.data) }

// Decode implements storage.Record.
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

// Shared returns the same object to several callers, while the garbage collector has not freed it.
func (o *Object) Shared() (object.Object, error) {
	obj, err := o.Indexed()
	if err != nil {
		o.codec.Intake.Refuse(o, err)
	}
	return obj, err
}

// Indexed does not call Refuse, which may read the store.
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

// Part compares the bytes of the fields.
func (o *Object) Part(of []wire.Field, other storage.Record) (object.Object, error) {
	b := o.codec.part()
	defer o.codec.parts.Put(b)
	b.read(o, of)
	if other, ok := other.(*Object); ok {
		second := o.codec.part()
		defer o.codec.parts.Put(second)
		if second.read(other, of); bytes.Equal(second.part, b.part) {
			return nil, nil
		}
	}
	obj, err := o.codec.Decoded.Read(o.format, b.part)
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

// Values implements storage.Record.
func (o *Object) Values(index string, find func() ([]string, error)) ([]string, error) {
	if v := o.valuesOf(index); v != nil {
		return v.found, v.err
	}
	v := &values{index: index}
	v.found, v.err = find()
	o.derive(func(to *derived) { v.more, to.values = to.values, v })
	return v.found, v.err
}

// HasValues implements storage.Record.
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

// DeepCopyObject returns another Object with the same bytes, which never change.
func (o *Object) DeepCopyObject() runtime.Object { return &Object{record: o.record} }

// GetObjectKind returns the kind of the decoded object.
func (o *Object) GetObjectKind() schema.ObjectKind { return kind{o} }

type kind struct{ *Object }

func (k kind) GroupVersionKind() schema.GroupVersionKind { return k.codec.Kind }

// SetGroupVersionKind does nothing: an informer has objects of one kind.
func (k kind) SetGroupVersionKind(schema.GroupVersionKind) {}

// With packs obj in the same format.
func (o *Object) With(obj object.Object) (storage.Record, error) {
	changed, err := o.codec.Pack(o.format, obj)
	if err != nil {
		return nil, err // not a nil *Object
	}
	return changed, nil
}
