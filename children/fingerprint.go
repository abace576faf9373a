// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"reflect"
	"time"
)

// deepest is how deep values may be nested: no API type is recursive without end.
const deepest = 100

// fingerprint returns a hash of a value, which costs a third of its JSON. In this process, equal
// fingerprints mean equal values. Equal values may have different ones, or none: then the JSON
// decides.
func fingerprint(seed maphash.Seed, value any) (sum uint64, ok bool) {
	var h maphash.Hash
	h.SetSeed(seed)
	if ok = hashValue(&h, reflect.ValueOf(value), deepest); !ok {
		return 0, false
	}
	return h.Sum64(), true
}

func hashValue(h *maphash.Hash, v reflect.Value, depth int) bool {
	if depth == 0 {
		return false
	}
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			hashNumber(h, 1)
		} else {
			hashNumber(h, 0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		hashNumber(h, uint64(v.Int())) //nolint:gosec // the bits matter
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		hashNumber(h, v.Uint())
	case reflect.Float32, reflect.Float64:
		hashNumber(h, math.Float64bits(v.Float()))
	case reflect.String:
		hashString(h, v.String())
	case reflect.Pointer, reflect.Interface:
		return hashElement(h, v, depth)
	case reflect.Struct:
		return hashStruct(h, v, depth)
	case reflect.Slice:
		hashSize(h, v)
		return hashElements(h, v, depth)
	case reflect.Array:
		return hashElements(h, v, depth)
	case reflect.Map:
		return hashMap(h, v, depth)
	default:
		return false // such as a function
	}
	return true
}

func hashElements(h *maphash.Hash, v reflect.Value, depth int) bool {
	for i := range v.Len() {
		if !hashValue(h, v.Index(i), depth-1) {
			return false
		}
	}
	return true
}

// hashSize tells nil from empty, as JSON does.
func hashSize(h *maphash.Hash, v reflect.Value) {
	if v.IsNil() {
		_ = h.WriteByte(0)
	} else {
		hashNumber(h, uint64(v.Len())) //nolint:gosec // it is not negative
	}
}

func hashElement(h *maphash.Hash, v reflect.Value, depth int) bool {
	if v.IsNil() {
		_ = h.WriteByte(0)
		return true
	}
	_ = h.WriteByte(1)
	if v.Kind() == reflect.Interface {
		hashString(h, v.Elem().Type().String())
	}
	return hashValue(h, v.Elem(), depth-1)
}

func hashStruct(h *maphash.Hash, v reflect.Value, depth int) bool {
	if v.Type() == reflect.TypeFor[time.Time]() { // its Location has caches
		if !v.CanInterface() {
			return false
		}
		t, ok := v.Interface().(time.Time)
		hashNumber(h, uint64(t.UnixNano())) //nolint:gosec // the bits matter
		hashString(h, t.Location().String())
		return ok
	}
	for i := range v.NumField() {
		field := v.Field(i)
		if isUnset(field) { // most are
			continue
		}
		hashNumber(h, uint64(i)+1) //nolint:gosec // it is not negative
		if !hashValue(h, field, depth-1) {
			return false
		}
	}
	hashNumber(h, 0)
	return true
}

func isUnset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		return v.IsNil()
	default:
		return false
	}
}

// hashMap adds the hashes of the entries, because a map has no order.
func hashMap(h *maphash.Hash, v reflect.Value, depth int) bool {
	var sum uint64
	if texts, ok := textsOf(v); ok {
		for key, value := range texts {
			sum += maphash.Comparable(h.Seed(), [2]string{key, value})
		}
		hashSize(h, v)
		hashNumber(h, sum)
		return true
	}
	var entry maphash.Hash
	entry.SetSeed(h.Seed())
	for all := v.MapRange(); all.Next(); {
		entry.Reset()
		if !hashValue(&entry, all.Key(), depth-1) || !hashValue(&entry, all.Value(), depth-1) {
			return false
		}
		sum += entry.Sum64()
	}
	hashSize(h, v)
	hashNumber(h, sum)
	return true
}

// textsOf returns the most frequent kind of a map, such as labels.
func textsOf(v reflect.Value) (texts map[string]string, ok bool) {
	if v.CanInterface() {
		texts, ok = v.Interface().(map[string]string)
	}
	return texts, ok
}

func hashNumber(h *maphash.Hash, n uint64) {
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], n)
	_, _ = h.Write(bytes[:])
}

func hashString(h *maphash.Hash, s string) {
	hashNumber(h, uint64(len(s)))
	_, _ = h.WriteString(s)
}
