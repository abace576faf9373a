// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package argument checks arguments of the library's users.
package argument

import (
	"fmt"
	"reflect"
)

// NotNegative returns an error if the value of a field is negative.
func NotNegative[T ~int | ~int64](field string, value T) error {
	if value < 0 {
		return fmt.Errorf("%s: %v, must not be negative", field, value)
	}
	return nil
}

// IsNil reports whether v is nil or an interface that holds a nil.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan, reflect.Interface:
		return r.IsNil()
	default:
		return false
	}
}
