// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package jsonvalue

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
)

// Equal reports whether two JSON values are equal. As in reflect.DeepEqual, nil and empty differ.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case string, bool, int64, float64, nil:
		return a == b
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for name, value := range a {
			if other, ok := b[name]; !ok || !Equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && (a == nil) == (b == nil) && slices.EqualFunc(a, b, Equal)
	}
	return reflect.DeepEqual(a, b)
}

// Encode returns what json.Marshal returns for a JSON value, in less time.
func Encode(value any) ([]byte, error) { return appendJSON(make([]byte, 0, 256), value) }

func appendJSON(to []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return appendString(to, v)
	case bool:
		return strconv.AppendBool(to, v), nil
	case int64:
		return strconv.AppendInt(to, v, 10), nil
	case map[string]any:
		if v != nil {
			return appendObject(to, v)
		}
	case []any:
		if v != nil {
			return appendArray(to, v)
		}
	}
	data, err := json.Marshal(value)
	return append(to, data...), err
}

// appendObject writes the fields in the order of their names.
func appendObject(to []byte, fields map[string]any) ([]byte, error) {
	var few [16]string // on the stack
	names := few[:0]
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	to = append(to, '{')
	var err error
	for i, name := range names {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = appendString(to, name); err != nil {
			return nil, err
		}
		if to, err = appendJSON(append(to, ':'), fields[name]); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

func appendArray(to []byte, items []any) ([]byte, error) {
	to = append(to, '[')
	var err error
	for i, item := range items {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = appendJSON(to, item); err != nil {
			return nil, err
		}
	}
	return append(to, ']'), nil
}

func appendString(to []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			data, err := json.Marshal(s) // with escapes
			return append(to, data...), err
		}
	}
	return append(append(append(to, '"'), s...), '"'), nil
}
