// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// mostStrings is how many strings are shared.
const mostStrings = 10_000

// sharedStrings holds strings that many objects of a cache have in common. Without it, each object
// has its own copy, of at least 16 bytes for each label. Package unique does not serve: it forgets a
// string at the next garbage collection, unless its handle is kept.
type sharedStrings struct {
	mu  sync.Mutex        // guards all
	all map[string]string // from each to itself
}

// intern makes an object share its strings.
func (s *sharedStrings) intern(o Object) {
	if _, ok := o.(*unstructured.Unstructured); ok {
		return // its accessors give out copies
	}
	o.SetNamespace(s.of(o.GetNamespace()))
	s.keys(o.GetLabels())
	s.keys(o.GetAnnotations())
	owners := o.GetOwnerReferences()
	for n := range owners {
		owners[n].APIVersion, owners[n].Kind = s.of(owners[n].APIVersion), s.of(owners[n].Kind)
	}
}

// keys replaces the keys of a map: an assignment keeps the key that it is given.
func (s *sharedStrings) keys(m map[string]string) {
	for k, v := range m {
		m[s.of(k)] = v
	}
}

// of returns the shared string that is equal, or str itself if there are too many.
func (s *sharedStrings) of(str string) string {
	if str == "" {
		return str
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.all[str]; ok {
		return known
	}
	if len(s.all) >= mostStrings {
		return str
	}
	if s.all == nil {
		s.all = map[string]string{}
	}
	str = strings.Clone(str) // it may be a part of a large answer
	s.all[str] = str
	return str
}

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object interface {
	metav1.Object
	runtime.Object
}

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
