// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"reflect"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/packed"
)

// intake turns objects into what an informer stores, and remembers those for which that failed.
type intake struct {
	key     key
	strings *sharedStrings
	codec   *packed.Codec // nil unless the objects are packed
	of      reflect.Type  // of the packed objects, without the pointer
	store   func() toolscache.Store

	untransformed listwatch.Broken // objects for which the transform failed
	unreadable    listwatch.Broken // packed objects that a reader could not decode
}

// pack makes the codec of packed objects.
func (in *intake) pack(example Object) {
	in.of = reflect.TypeOf(example).Elem()
	in.codec = &packed.Codec{Kind: in.key.gvk, KeepManagedFields: in.key.keepManagedFields, Intake: in}
}

// New returns an empty object.
func (in *intake) New() Object {
	return reflect.New(in.of).Interface().(Object) //nolint:forcetypeassert // the example is one
}

func (in *intake) Intern(s string) string { return in.strings.of(s) }

// Refuse records a stored object that a reader could not decode.
func (in *intake) Refuse(o *packed.Object, err error) {
	stored := func() bool {
		obj, _, _ := in.store().GetByKey(object.Name(object.Key(o)))
		now, ok := obj.(Object)
		return ok && now.GetResourceVersion() == o.GetResourceVersion()
	}
	if !stored() {
		return
	}
	if in.unreadable.Add(o, err); !stored() {
		in.unreadable.Remove(o)
	}
}

// prepare trims and transforms an object. client-go may call it twice for an object of an initial
// list.
func (in *intake) prepare(o Object) Object {
	if p, ok := o.(*packed.Object); ok {
		return p.Prepared()
	}
	in.strings.intern(o)
	in.note(o, in.key.trim(o))
	return o
}

// Prepare applies the transform to a packed object.
func (in *intake) Prepare(o *packed.Object) *packed.Object {
	in.unreadable.Remove(o)
	if in.key.transform == nil {
		return o
	}
	obj, err := o.Decode()
	if err != nil {
		in.unreadable.Add(o, err)
		return o
	}
	err = in.key.transform.run(obj)
	changed, failed := o.Repack(obj)
	if failed == nil {
		o = changed
	} else if err == nil {
		err = fmt.Errorf("the result of the transform %q cannot be encoded: %w", in.key.transform.name, failed)
	}
	in.note(o, err)
	return o
}

func (in *intake) note(o Object, err error) {
	if err != nil {
		in.untransformed.Add(o, err)
	} else {
		in.untransformed.Remove(o)
	}
}

// prune forgets objects that are no longer stored.
func (in *intake) prune() {
	in.untransformed.Prune(in.store())
	in.unreadable.Prune(in.store())
}
