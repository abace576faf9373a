// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"os"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/builtin"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// Storage is how the cache stores objects between reads: a choice between memory and CPU time.
// Reads return the same objects in both forms. Set [Options].Storage for all handles, or
// [Scope].Storage for one. With client-go's environment variable KUBE_CACHE_MUTATION_DETECTOR=true,
// which is for tests, all objects are Decoded.
type Storage uint8

const (
	// DefaultStorage is [Options].Storage, or else Packed for typed objects of built-in kinds and
	// for unstructured objects, and Decoded for others.
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

// usualStorage depends on what packed storage costs and saves (designs/0015): a read of protobuf
// costs no more than a copy, one of unstructured JSON a third more, while events cost half. But a
// typed custom resource is decoded in three times the time of a copy, and operators read it at each
// event of its children.
func usualStorage(gvk schema.GroupVersionKind, f listwatch.Form, example Object) Storage {
	_, protobuf := example.(interface{ Unmarshal(data []byte) error })
	if f == listwatch.Unstructured || protobuf && f == listwatch.Typed && scheme.Scheme.Recognizes(gvk) && builtin.HasType(example) {
		return Packed
	}
	return Decoded
}

// storageFor returns the storage of a form: metadata is always decoded, and everything is while
// client-go's mutation detector runs. own reports whether it is not the one of Options.
func (s Scope) storageFor(f listwatch.Form) (_ Storage, own bool) {
	if f == listwatch.Metadata || detectsMutations() {
		return Decoded, false
	}
	return s.Storage, s.ownStorage
}

// detectsMutations reports whether client-go's mutation detector runs. It compares the informer's
// objects with copies, so it cannot see what happens to an object that was decoded for a reader.
// For packed objects it would report the memory of the last decoding as a change.
func detectsMutations() bool {
	on, _ := strconv.ParseBool(os.Getenv("KUBE_CACHE_MUTATION_DETECTOR"))
	return on
}

// records reports whether an informer that this package makes stores Records.
func (k *key) records() bool { return k.storage == Packed }

// codec returns what reads the objects of an informer.
func (in *intake) codec(example Object) storage.Codec {
	of := reflect.TypeOf(example).Elem()
	decoded := storage.Decoded{Kind: in.key.gvk, New: func() Object {
		return reflect.New(of).Interface().(Object) //nolint:forcetypeassert // the example is one
	}}
	if in.key.records() {
		return &packed.Codec{Decoded: decoded, KeepManagedFields: in.key.keepManagedFields, Intake: in}
	}
	return &decoded
}

func (s Storage) validate(field string) error {
	if s > Packed {
		return fmt.Errorf("%s is %d; set cache.Decoded or cache.Packed", field, s)
	}
	return nil
}
