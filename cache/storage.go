// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/packed"
)

// Storage is how the cache stores objects between reads: a choice between memory and CPU time.
// Reads return the same objects in both forms. Set [Options].Storage for all handles, or
// [Scope].Storage for one.
type Storage uint8

const (
	// DefaultStorage is [Options].Storage, or else Packed for typed objects of built-in kinds and
	// Decoded for others.
	DefaultStorage Storage = iota
	// Decoded stores Go objects. Reads copy them, and Shared returns them without a copy. Choose it
	// for kinds that you often list, index or transform.
	Decoded
	// Packed stores the bytes from the API server, without managedFields. Each read decodes an
	// object of its own. Choose it for kinds with many objects that are rarely read. "Storage" in
	// the package docs compares the costs.
	Packed
)

// String returns "default", "decoded" or "packed".
func (s Storage) String() string {
	switch s {
	case Decoded:
		return "decoded"
	case Packed:
		return "packed"
	default:
		return "default"
	}
}

// usualStorage depends on the encoding. Decoding protobuf takes about twice as long as copying the
// object; decoding JSON takes four times as long.
func usualStorage(gvk schema.GroupVersionKind, f listwatch.Form, example Object) Storage {
	_, protobuf := example.(interface{ Unmarshal(data []byte) error })
	return storageOf(protobuf && f == listwatch.Typed && scheme.Scheme.Recognizes(gvk))
}

func storageOf(packed bool) Storage {
	if packed {
		return Packed
	}
	return Decoded
}

func (s Storage) validate(field string) error {
	if s > Packed {
		return fmt.Errorf("%s is %d; set cache.Decoded or cache.Packed", field, s)
	}
	return nil
}

// newCodec returns the codec of packed objects, or nil.
func (i *informer) newCodec() *packed.Codec {
	if !i.key.packed {
		return nil
	}
	of := reflect.TypeOf(i.example).Elem()
	return &packed.Codec{
		Kind: i.key.gvk, KeepManagedFields: i.key.keepManagedFields, Intern: i.env.strings.of, Refused: i.refused,
		New: func() Object { return reflect.New(of).Interface().(Object) }, //nolint:forcetypeassert // the example is one
	}
}

// refused records a stored object that a reader could not decode.
func (i *informer) refused(o *packed.Object, err error) {
	stored := func() bool {
		obj, _, _ := i.store().GetByKey(storeKey(listwatch.NameOf(o)))
		now, ok := obj.(Object)
		return ok && now.GetResourceVersion() == o.GetResourceVersion()
	}
	if !stored() {
		return
	}
	if i.unreadable.Add(o, err); !stored() {
		i.unreadable.Remove(o)
	}
}

// repack applies the transform to a packed object.
func (i *informer) repack(o *packed.Object) *packed.Object {
	i.unreadable.Remove(o)
	if i.key.transform == nil {
		return o
	}
	obj, err := o.Decode()
	if err != nil {
		i.unreadable.Add(o, err)
		return o
	}
	err = i.key.transform.run(obj)
	changed, failed := o.Repack(obj)
	if failed == nil {
		o = changed
	} else if err == nil {
		err = fmt.Errorf("the result of the transform %q cannot be encoded: %w", i.key.transform.name, failed)
	}
	if err != nil {
		i.untransformed.Add(o, err)
	} else {
		i.untransformed.Remove(o)
	}
	return o
}
