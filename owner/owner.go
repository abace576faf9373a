// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object = object.Object

// Kind is the kind of the owners of type T, such as a *cache.Handle[T].
type Kind[T Object] interface {
	GroupVersionKind() schema.GroupVersionKind
	OwnerRef(T) *metav1ac.OwnerReferenceApplyConfiguration
}

// Owner is an object that may own others. Its methods may be called concurrently for different
// objects.
type Owner struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
	uid  types.UID
	err  error // a mistake, for Set and SetController
}

// Of returns obj as an owner. obj must have been read. Mistakes, such as an object without a UID,
// are errors of Set and SetController.
func Of[T Object](kind Kind[T], obj T) Owner {
	if argument.IsNil(kind) {
		return Owner{err: errors.New("owner: the kind is nil; give the handle of the owner")}
	}
	return of(kind.GroupVersionKind(), obj)
}

// InScheme is Of with the kind that the scheme has for obj.
func InScheme(scheme *runtime.Scheme, obj Object) Owner {
	if scheme == nil || argument.IsNil(obj) {
		return Owner{err: errors.New("owner: the scheme or the object is nil")}
	}
	if kind := obj.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return of(kind, obj) // it may be unstructured, or metadata
	}
	kinds, err := object.Kinds(scheme, obj)
	if err != nil {
		return Owner{err: fmt.Errorf("owner: %w", err)}
	}
	return of(kinds[0], obj)
}

func of(kind schema.GroupVersionKind, obj Object) Owner {
	if argument.IsNil(obj) {
		return Owner{err: fmt.Errorf("owner: the %s is nil", kind.Kind)}
	}
	o := Owner{kind: kind, key: object.Key(obj), uid: obj.GetUID()}
	if o.uid == "" || o.key.Name == "" || kind.Kind == "" {
		o.err = fmt.Errorf("owner: the %s has no UID, name or kind; give an object that was read", o.name())
	}
	return o
}

// Option changes a reference that Set or SetController makes.
type Option func(*metav1.OwnerReference)

// BlockDeletion sets whether a foreground deletion of the owner waits until the object is gone.
// Default: true for SetController, false for Set. If the cluster enforces it, true needs the right
// to update the owner's subresource finalizers.
func BlockDeletion(block bool) Option {
	return func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = &block }
}

// SetController makes the owner the controlling owner of obj. It replaces a reference to the owner,
// or to a predecessor with the same kind and name.
//
// The error is an *[AlreadyOwnedError] if obj has another controlling owner. A namespaced owner of
// an object in another namespace, or in none, is an error, too. With an error, obj is unchanged.
func (o Owner) SetController(obj metav1.Object, options ...Option) error {
	r := o.reference()
	r.Controller, r.BlockOwnerDeletion = new(true), new(true)
	return o.set(obj, r, options)
}

// Set makes the owner one of the owners of obj, with SetController's errors for namespaces. An
// owner that controls obj continues to do so.
func (o Owner) Set(obj metav1.Object, options ...Option) error {
	return o.set(obj, o.reference(), options)
}

// Has reports whether the owner owns obj, controlling or not.
func (o Owner) Has(obj metav1.Object) bool {
	return o.uid != "" && !argument.IsNil(obj) && slices.ContainsFunc(obj.GetOwnerReferences(), o.is)
}

// Remove removes the owner from obj, controlling or not, and reports whether obj had it. An object
// without owners is not garbage-collected.
func (o Owner) Remove(obj metav1.Object) bool {
	if !o.Has(obj) {
		return false
	}
	obj.SetOwnerReferences(slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), o.is))
	return true
}

func (o Owner) name() string { return strings.TrimSpace(o.kind.Kind + " " + object.Name(o.key)) }

func (o Owner) reference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.kind.GroupVersion().String(), Kind: o.kind.Kind, Name: o.key.Name, UID: o.uid}
}

func (o Owner) is(r metav1.OwnerReference) bool { return r.UID == o.uid }

func (o Owner) replaces(r metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	return o.is(r) || err == nil && gv.Group == o.kind.Group && r.Kind == o.kind.Kind && r.Name == o.key.Name
}

func (o Owner) set(obj metav1.Object, r metav1.OwnerReference, options []Option) error {
	if err := o.fits(obj); err != nil {
		return err
	}
	if other := metav1.GetControllerOf(obj); r.Controller != nil && other != nil && !o.replaces(*other) {
		return &AlreadyOwnedError{Object: object.Key(obj), Controller: *other, Owner: r}
	}
	references := slices.Clone(obj.GetOwnerReferences())
	at := slices.IndexFunc(references, o.replaces)
	if at >= 0 && r.Controller == nil && o.is(references[at]) {
		r.Controller, r.BlockOwnerDeletion = references[at].Controller, references[at].BlockOwnerDeletion
	}
	for _, option := range options {
		if option != nil {
			option(&r)
		}
	}
	if at < 0 {
		obj.SetOwnerReferences(append(references, r))
		return nil
	}
	references[at] = r
	rest := slices.DeleteFunc(references[at+1:], o.replaces)
	obj.SetOwnerReferences(references[:at+1+len(rest)])
	return nil
}

func (o Owner) fits(obj metav1.Object) error {
	switch {
	case o.err != nil:
		return o.err
	case o == Owner{}:
		return errors.New("owner: the Owner is empty; owner.Of makes one")
	case argument.IsNil(obj):
		return fmt.Errorf("owner: the object for the owner %s is nil", o.name())
	case obj.GetUID() == o.uid:
		return fmt.Errorf("owner: the %s cannot own itself", o.name())
	case o.key.Namespace == "" || o.key.Namespace == obj.GetNamespace():
		return nil
	case obj.GetNamespace() == "":
		return fmt.Errorf("owner: the %s cannot own %s, which has no namespace; set its namespace, or clean up a cluster-scoped object with a finalizer",
			o.name(), object.Name(object.Key(obj)))
	}
	return fmt.Errorf("owner: the %s cannot own %s in another namespace; use a finalizer to clean it up, and labels to find it", o.name(), object.Name(object.Key(obj)))
}

// AlreadyOwnedError is the error of SetController for an object with another controlling owner.
type AlreadyOwnedError struct {
	Object types.NamespacedName // which was not changed
	// Controller is the present controlling owner, Owner the one to be set.
	Controller, Owner metav1.OwnerReference
}

// Error implements error.
func (e *AlreadyOwnedError) Error() string {
	return fmt.Sprintf("owner: %s is controlled by the %s %s and cannot be controlled by the %s %s, too; delete it, rename one, or use Set",
		object.Name(e.Object), e.Controller.Kind, e.Controller.Name, e.Owner.Kind, e.Owner.Name)
}
