// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"hash/maphash"
	"math"
	"reflect"
	"time"
)

// deepest is how deep values may be nested: no API type is recursive without end.
const deepest = 100

// fingerprint returns a hash of values, which costs a third of its JSON. In this process, equal
// fingerprints mean equal values. Equal values may have different ones, or none: then the JSON
// decides.
func fingerprint(seed maphash.Seed, values ...any) (sum uint64, ok bool) {
	var h hasher
	h.SetSeed(seed)
	for _, value := range values {
		add(&h, reflect.TypeOf(value))
		h.value(reflect.ValueOf(value), deepest)
	}
	return h.Sum64(), !h.failed
}

type hasher struct {
	maphash.Hash

	failed bool // the value has no fingerprint
}

func (h *hasher) value(v reflect.Value, depth int) {
	if h.failed = h.failed || depth == 0; h.failed {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		add(h, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		add(h, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		add(h, v.Uint())
	case reflect.Float32, reflect.Float64:
		add(h, math.Float64bits(v.Float()))
	case reflect.String:
		add(h, v.String())
	case reflect.Pointer, reflect.Interface:
		add(h, v.IsNil())
		if v.IsNil() {
			return
		}
		if v.Kind() == reflect.Interface {
			add(h, v.Elem().Type())
		}
		h.value(v.Elem(), depth-1)
	case reflect.Struct:
		h.fields(v, depth)
	case reflect.Slice, reflect.Array:
		add(h, v.Kind() == reflect.Slice && v.IsNil()) // as JSON distinguishes nil from empty
		add(h, v.Len())
		for i := range v.Len() {
			h.value(v.Index(i), depth-1)
		}
	case reflect.Map:
		h.entries(v, depth)
	default:
		h.failed = true // such as a function
	}
}

func (h *hasher) fields(v reflect.Value, depth int) {
	if h.failed = v.Type() == reflect.TypeFor[time.Time](); h.failed { // its Location has caches
		return
	}
	for i := range v.NumField() {
		if field := v.Field(i); !field.IsZero() { // most are
			add(h, i)
			h.value(field, depth-1)
		}
	}
	add(h, -1)
}

// entries adds the hashes of the entries, because a map has no order.
func (h *hasher) entries(v reflect.Value, depth int) {
	add(h, v.IsNil())
	add(h, v.Len())
	var sum uint64
	if v.CanInterface() && v.Type() == reflect.TypeFor[map[string]string]() { // this is faster
		for key, value := range v.Interface().(map[string]string) { //nolint:forcetypeassert // as checked
			sum += maphash.Comparable(h.Seed(), [2]string{key, value})
		}
		add(h, sum)
		return
	}
	var entry hasher
	entry.SetSeed(h.Seed())
	for all := v.MapRange(); all.Next(); {
		entry.Reset()
		entry.value(all.Key(), depth-1)
		entry.value(all.Value(), depth-1)
		sum += entry.Sum64()
	}
	add(h, sum)
	h.failed = h.failed || entry.failed
}

func add[T comparable](h *hasher, value T) { maphash.WriteComparable(&h.Hash, value) }
