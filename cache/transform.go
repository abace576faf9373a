// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
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

// transform is client-go's TransformFunc of the informer. It may see an object more than once: twice in an initial list.
func (i *informer) transform(obj any) (any, error) {
	if o, ok := obj.(Object); ok {
		i.trim(o)
	}
	return obj, nil
}

// trim drops what is not kept of an object.
func (i *informer) trim(o Object) {
	i.learnScope(o)
	intern(o)
	switch i.key.form {
	case listwatch.Typed: // lists of custom resources have it, watches do not
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	case listwatch.Metadata: // it comes as a PartialObjectMetadata
		o.GetObjectKind().SetGroupVersionKind(i.key.gvk)
	}
	if !i.key.keepManagedFields {
		o.SetManagedFields(nil)
	}
	if a := o.GetAnnotations(); i.key.readOnly && a[corev1.LastAppliedConfigAnnotation] != "" {
		delete(a, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(a)
	}
	if i.key.transform != nil {
		i.apply(o)
	}
}

// apply applies the transform. What identifies the object stays: client-go has looked at that before.
func (i *informer) apply(o Object) {
	namespace, name, uid, version := o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
	err := recovered(func() { i.key.transform.apply(o) })
	if err == nil && (o.GetNamespace() != namespace || o.GetName() != name || o.GetUID() != uid || o.GetResourceVersion() != version) {
		err = errors.New("it changed the object's name, namespace, UID or resource version")
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(uid)
	o.SetResourceVersion(version)
	if err != nil {
		i.untransformed.Add(o, fmt.Errorf("the transform %q failed: %w", i.key.transform.name, err))
		return
	}
	i.untransformed.Remove(o)
}

// learnScope corrects the mapping by an object: a CRD may have come back with another scope, and the watch have gone on.
func (i *informer) learnScope(o Object) {
	m := i.copy.Mapping.Load()
	if m == nil || (m.Scope.Name() == meta.RESTScopeNameNamespace) == (o.GetNamespace() != "") {
		return
	}
	other := *m
	other.Scope = meta.RESTScopeRoot
	if o.GetNamespace() != "" {
		other.Scope = meta.RESTScopeNamespace
	}
	i.copy.Mapping.Store(&other)
	i.cache.backend.Forget(i.key.gvk)
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
