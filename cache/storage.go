// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"runtime"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/wire"
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
	return &packed.Codec{
		Kind: i.key.gvk, KeepManagedFields: i.key.keepManagedFields, Intern: i.env.strings.of, Refused: i.refused,
		New: func() (Object, error) {
			if i.key.form == listwatch.Unstructured {
				return &unstructured.Unstructured{}, nil
			}
			return i.example.DeepCopyObject().(Object), nil //nolint:forcetypeassert // a copy has the same type
		},
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

// whole returns a stored object in its Go form, which others may have too, or nil if it cannot be
// decoded.
func whole(obj any) any {
	p, ok := obj.(*packed.Object)
	if !ok {
		return obj
	}
	o, err := p.Shared()
	if err != nil {
		return nil
	}
	return o
}

// some is the number of objects from which several goroutines decode a list.
const some = 256

func (h *handle) packed() bool { return h.group != nil && h.group.key.packed }

// decode returns stored objects as a read does: copies or, for a shared handle, the same objects as
// for others. It leaves out objects that cannot be decoded.
func (h *handle) decode(stored []any) []any {
	if len(stored) == 0 || !h.packed() {
		return stored
	}
	decoded := make([]any, len(stored))
	one := func(from, to int) {
		for n := from; n < to; n++ {
			decoded[n], _ = h.unpack(stored[n])
		}
	}
	var all sync.WaitGroup
	share := max(some, (len(stored)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := share; from < len(stored); from += share {
		all.Go(func() { one(from, min(from+share, len(stored))) })
	}
	one(0, min(share, len(stored)))
	all.Wait()
	left := decoded[:0]
	for _, obj := range decoded {
		if obj != nil {
			left = append(left, obj)
		}
	}
	return left
}

// unpack returns a stored object, decoded if it is packed.
func (h *handle) unpack(obj any) (any, error) {
	p, ok := obj.(*packed.Object)
	if !ok {
		return obj, nil
	}
	var o Object
	var err error
	if h.shared {
		o, err = p.Shared()
	} else {
		o, err = p.Decode()
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// mark returns an object with which CatchUp marks the events of an informer.
func (i *informer) mark(name string) Object {
	mark, _ := i.example.DeepCopyObject().(Object)
	mark.SetUID(markUID)
	mark.SetName(name)
	if i.codec == nil {
		return mark
	}
	p, _ := i.codec.Pack(wire.JSON, mark) // an empty object of an API type can be encoded
	return p
}

// unpacking is an event handler that gets packed objects in their Go form.
type unpacking struct {
	toolscache.ResourceEventHandler
}

func (u unpacking) OnAdd(obj any, initial bool) {
	if o := whole(obj); o != nil {
		u.ResourceEventHandler.OnAdd(o, initial)
	}
}

func (u unpacking) OnUpdate(before, after any) {
	n := whole(after)
	if n == nil {
		return
	}
	o := n
	if before != after { // else it is a resync
		o = whole(before)
	}
	if o == nil {
		u.ResourceEventHandler.OnAdd(n, false)
		return
	}
	u.ResourceEventHandler.OnUpdate(o, n)
}

func (u unpacking) OnDelete(obj any) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		tombstone.Obj = final(tombstone.Obj)
		u.ResourceEventHandler.OnDelete(tombstone)
		return
	}
	u.ResourceEventHandler.OnDelete(final(obj))
}

func (u unpacking) arrived(mark string) {
	if m, ok := u.ResourceEventHandler.(marked); ok {
		m.arrived(mark)
	}
}

// final returns the last state of a deleted object: only metadata if it cannot be decoded.
func final(obj any) any {
	if o := whole(obj); o != nil {
		return o
	}
	return obj.(*packed.Object).Outline() //nolint:forcetypeassert // others are whole
}
