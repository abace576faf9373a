// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"reflect"
)

// Transform changes objects before they are kept. NewTransform makes one.
type Transform struct {
	name  string
	check func(Object) error
	apply func(Object)
}

// NewTransform makes a transform of a function that changes an object in place, for handles of T. The name is for reports. The
// function must not keep the object, must be safe for concurrent use, and may see an object more than once, its own result
// included. If it panics, or changes what identifies the object, the object is kept as the function left it, but for that, and the
// state names it.
func NewTransform[T Object](name string, change func(T)) *Transform {
	return &Transform{
		name: name,
		check: func(o Object) error {
			if change == nil {
				return fmt.Errorf("the transform %q has no function", name)
			}
			if _, ok := o.(T); !ok {
				return fmt.Errorf("the transform %q is for %s", name, reflect.TypeFor[T]())
			}
			return nil
		},
		apply: func(o Object) {
			if obj, ok := o.(T); ok {
				change(obj)
			}
		},
	}
}

// recovered calls f and returns its panic as an error.
func recovered(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", p))
		}
	}()
	f()
	return nil
}

// run applies the transform. It keeps what identifies the object: client-go has looked at that before.
func (t *Transform) run(o Object) error {
	namespace, name, uid, version := o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
	err := recovered(func() { t.apply(o) })
	if err == nil && (o.GetNamespace() != namespace || o.GetName() != name || o.GetUID() != uid || o.GetResourceVersion() != version) {
		err = errors.New("it changed the object's name, namespace, UID or resource version")
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(uid)
	o.SetResourceVersion(version)
	if err != nil {
		return fmt.Errorf("the transform %q failed: %w", t.name, err)
	}
	return nil
}
