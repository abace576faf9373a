// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// intake turns objects into what an informer stores, and remembers those for which that failed.
type intake struct {
	key     key
	strings *sharedStrings
	store   func() toolscache.Store

	untransformed listwatch.Broken // objects for which the transform failed
	unreadable    listwatch.Broken // Records that a reader could not decode
}

func (in *intake) Intern(s string) string { return in.strings.of(s) }

// Refuse records a stored object that a reader could not decode.
func (in *intake) Refuse(o Object, err error) {
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

// prepare trims and transforms an object.
func (in *intake) prepare(o Object) Object {
	if r, ok := o.(storage.Record); ok {
		return in.transformed(r)
	}
	in.strings.intern(o)
	in.note(o, in.key.trim(o))
	return o
}

func (in *intake) transformed(r storage.Record) Object {
	in.unreadable.Remove(r)
	if in.key.transform == nil {
		return r
	}
	obj, err := r.Decode()
	if err != nil {
		in.unreadable.Add(r, err)
		return r
	}
	err = in.key.change(obj)
	changed, failed := r.With(obj)
	if failed == nil {
		r = changed
	} else if err == nil {
		err = fmt.Errorf("the result of the transform %q cannot be encoded: %w", in.key.transform.name, failed)
	}
	in.note(r, err)
	return r
}

func (in *intake) note(o Object, err error) {
	if err != nil {
		in.untransformed.Add(o, err)
	} else {
		in.untransformed.Remove(o)
	}
}
