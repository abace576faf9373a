// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is an API kind of known scope. A *cache.Handle is one.
type Kind interface {
	// GroupVersionKind returns the kind.
	GroupVersionKind() schema.GroupVersionKind
	// Namespaced reports whether objects of the kind live in namespaces. It makes no request: an error
	// means that the scope is not known yet.
	Namespaced() (bool, error)
}

// Owner makes the controlling owner due if it is of the given kind, in any version of its group. It
// looks at the old and the new state: the former owner of an object that changed hands is due, too.
// An event that comes before the scope of the owner's kind is known is tried again. For owner
// references that are not the controller's, use AnyOwner; cache.Handle.OwnerRef makes one that is.
func Owner(of Kind) Handler[types.NamespacedName] { return owner{kind: of} }

// AnyOwner is Owner for all owner references, such as those of controllerutil.SetOwnerReference.
func AnyOwner(of Kind) Handler[types.NamespacedName] { return owner{kind: of, any: true} }

type owner struct {
	kind Kind
	any  bool // also those that do not control
}

// CheckType refuses a missing kind.
func (o owner) CheckType(Object) error {
	if v := reflect.ValueOf(o.kind); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("handler.Owner was given no kind")
	}
	return nil
}

func (o owner) Keys(_ context.Context, e Event) ([]types.NamespacedName, error) {
	var keys []types.NamespacedName
	for _, obj := range e.states() {
		for _, ref := range obj.GetOwnerReferences() {
			if !o.follows(ref) {
				continue
			}
			namespaced, err := o.kind.Namespaced()
			if err != nil {
				return nil, fmt.Errorf("owner of %s: %w", e.Key(), err)
			}
			key := types.NamespacedName{Name: ref.Name}
			if namespaced {
				key.Namespace = obj.GetNamespace()
			}
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// follows reports whether a reference is to an owner of our kind, in any version.
func (o owner) follows(ref metav1.OwnerReference) bool {
	want := o.kind.GroupVersionKind()
	if ref.Kind != want.Kind || !o.any && (ref.Controller == nil || !*ref.Controller) {
		return false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == want.Group
}
