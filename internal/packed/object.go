// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"weak"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/object"
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
	last := &recent{weak: weak.Make(d)}
	if o.codec.keeps.Load() {
		last.kept = d
	}
	o.recent.Store(last)
	return obj, nil
}

func (o *Object) lately() *decoded {
	if last := o.recent.Load(); last != nil {
		return last.weak.Value()
	}
	return nil
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
