// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package storage is the seam between caches and the forms in which they can store an object.
//
// An informer stores what its [Codec] reads: either objects in their Go form, or Records. Package
// internal/packed has the only kind of Records. The functions of this package take both, also from
// informers of other programs.
package storage

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// Record is a stored object in another form than its Go form. Its metadata can be read without
// decoding. It never changes, except by its setters, and is safe for concurrent use.
type Record interface {
	object.Object

	// Decode returns the object in its Go form. The caller owns it.
	Decode() (object.Object, error)
	// Shared is Decode for callers that do not change the result, which others may have, too.
	Shared() (object.Object, error)
	// Indexed is Shared for index functions, which run under the store's lock: it reports no object
	// that cannot be decoded.
	Indexed() (object.Object, error)
	// Part returns an object of the Go form with only some fields, the namespace and the name, or
	// nil if the fields are the same in another record.
	Part(of []wire.Field, other Record) (object.Object, error)
	// Values returns what find returned for the object when it was first asked for an index.
	Values(index string, find func() ([]string, error)) ([]string, error)
	// HasValues reports whether Values has been called for an index.
	HasValues(index string) bool

	// ReadLabels is GetLabels. ok is false if they cannot be read.
	ReadLabels() (labels map[string]string, ok bool)
	// OwnerUIDs returns the UIDs of GetOwnerReferences. ok is false if they cannot be read.
	OwnerUIDs() (uids []string, ok bool)
	// Outline returns an object of the Go form with only name, UID, version, labels and owners.
	Outline() object.Object
	// With returns a record of obj, this object after a change.
	With(obj object.Object) (Record, error)
	// Size returns the number of kept bytes, without constant overhead.
	Size() int
}

// Handler marks a client-go event handler that takes Records as they are.
type Handler interface{ TakesRecords() }

// Copy returns a stored object in its Go form. The caller owns it.
func Copy(stored any) (any, error) {
	switch o := stored.(type) {
	case Record:
		return one(o.Decode())
	case runtime.Object:
		return o.DeepCopyObject(), nil
	}
	return stored, nil
}

// Shared returns a stored object in its Go form, which others may have, too.
func Shared(stored any) (any, error) {
	if r, ok := stored.(Record); ok {
		return one(r.Shared())
	}
	return stored, nil
}

// one makes sure that no nil pointer is returned as an object.
func one(o object.Object, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Indexed is Shared for index functions. It returns nil for an object that cannot be decoded.
func Indexed(stored any) any {
	if r, ok := stored.(Record); ok {
		o, _ := one(r.Indexed())
		return o
	}
	return stored
}

// Final returns the last state of a deleted object in its Go form: only an outline if it cannot be
// decoded.
func Final(stored any) any {
	r, ok := stored.(Record)
	if !ok {
		return stored // perhaps nil: client-go did not find the last state
	}
	if o, err := r.Shared(); err == nil {
		return o
	}
	return r.Outline()
}

// Labels returns the labels of an object. ok is false if they cannot be read.
func Labels(o object.Object) (labels map[string]string, ok bool) {
	if r, is := o.(Record); is {
		return r.ReadLabels()
	}
	return o.GetLabels(), true
}

// OwnerUIDs returns the UIDs of all owner references. ok is false if they cannot be read.
func OwnerUIDs(o object.Object) (uids []string, ok bool) {
	if r, is := o.(Record); is {
		return r.OwnerUIDs()
	}
	for _, ref := range o.GetOwnerReferences() {
		uids = append(uids, string(ref.UID))
	}
	return uids, true
}

// Size returns the kept bytes of a Record, or the length of another object as JSON. ok is false if
// it has none.
func Size(stored any) (bytes int, ok bool) {
	if r, is := stored.(Record); is {
		return r.Size(), true
	}
	text, err := json.Marshal(stored)
	return len(text), err == nil
}
