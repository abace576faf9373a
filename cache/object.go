// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/object"
)

const mostStrings = 10_000

// sharedStrings deduplicates strings that many objects have in common, such as label keys. Each
// copy would take at least 16 bytes. Package unique forgets a string at the next garbage
// collection, unless its handle is kept.
type sharedStrings struct {
	mu  sync.Mutex // guards all
	all map[string]string
}

func (s *sharedStrings) intern(o Object) {
	if _, ok := o.(*unstructured.Unstructured); ok {
		return // its accessors return copies
	}
	o.SetNamespace(s.of(o.GetNamespace()))
	s.keys(o.GetLabels())
	s.keys(o.GetAnnotations())
	owners := o.GetOwnerReferences()
	for n := range owners {
		owners[n].APIVersion, owners[n].Kind = s.of(owners[n].APIVersion), s.of(owners[n].Kind)
	}
}

// keys replaces the keys of a map. An assignment keeps the key that it is given.
func (s *sharedStrings) keys(m map[string]string) {
	for k, v := range m {
		m[s.of(k)] = v
	}
}

func (s *sharedStrings) of(str string) string {
	if str == "" {
		return str
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.all[str]; ok {
		return known
	}
	str = strings.Clone(str) // str may be a part of a whole object
	if len(s.all) >= mostStrings {
		return str
	}
	if s.all == nil {
		s.all = map[string]string{}
	}
	s.all[str] = str
	return str
}

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object = object.Object

// Transform changes objects before the cache keeps them.
type Transform struct {
	name    string
	nothing bool // it has no function
	check   func(Object) error
	apply   func(Object)
}

// NewTransform returns a transform that calls change for each object, for handles of T. change
// modifies the object in place. It must be safe for concurrent use and must not keep the object. It
// is called once for each state of an object that the API server sends. The name is for errors and
// State.
//
// If change panics or changes the object's namespace, name, UID or resource version, these are
// restored, the object is stored, and State reports the error. So it is with ownerReferences in a
// scope with SlotOwner.
func NewTransform[T Object](name string, change func(T)) *Transform {
	return &Transform{
		name:    name,
		nothing: change == nil,
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

// Func returns the transform for SetTransform of an informer that the cache did not make. It
// returns the object, and the error of a transform that fails. client-go may call it again for its
// own result.
func (t *Transform) Func() toolscache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(Object)
		if !ok || t.check(o) != nil {
			return obj, nil
		}
		return obj, t.run(o)
	}
}

func recovered(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", p))
		}
	}()
	f()
	return nil
}

// run applies the transform and restores the object's identity, which client-go has already read.
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
