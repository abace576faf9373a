// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// sizes estimates how much memory a decoder needs for JSON, in addition to the JSON itself. The
// two bytes of an element {} can become a struct of a kilobyte.
type sizes struct {
	fields sync.Map // the fields of struct types by JSON name, as map[string]reflect.Type
}

const (
	level    = 2 << 10 // the stack of a decoder, for each level of nesting
	header   = 48      // of a map
	key      = 48      // of an element of a map: the text, and rounding
	group    = 8       // the elements for which a map allocates at first
	indirect = 128     // a map stores larger elements outside
	deepest  = 10_000  // the levels that the decoder accepts
)

// container is an open object or list of the JSON.
type container struct {
	object bool
	key    bool                    // the next string is a key
	fields map[string]reflect.Type // of a struct
	elem   reflect.Type            // of a list or map; nil: not decoded
	each   int64                   // bytes for each element of a list or map
	first  int64                   // bytes for the first one of a map, in addition
}

// of returns the estimate for text in a value of type t. Types with an UnmarshalJSON count as their
// fields. The estimate for malformed JSON, which the decoder rejects, may be wrong.
func (s *sizes) of(text []byte, t reflect.Type) (size int64) {
	open := []container{{}}
	next, depth := t, 0 // next is the type of the next value; nil: not decoded
	for i := 0; i < len(text); i++ {
		in := &open[len(open)-1]
		switch text[i] {
		case '{', '[':
			c := s.container(next, text[i] == '{')
			if next = c.elem; !c.object {
				size += c.each
			}
			if len(open) > deepest {
				return size
			}
			if open = append(open, c); (c.elem != nil || c.fields != nil) && len(open) > depth {
				depth = len(open)
				size += level
			}
		case '}', ']':
			if len(open) > 1 {
				open = open[:len(open)-1]
			}
		case ',':
			if in.key = in.object; !in.object {
				next = in.elem
				size += in.each
			}
		case '"':
			end := stringEnd(text, i)
			if in.key {
				in.key = false
				if next = in.elem; in.fields != nil {
					next = in.fields[keyIn(text[i:end])]
					size += pointed(next)
				}
				size += in.each + in.first
				in.first = 0
			}
			i = end - 1
		}
	}
	return size
}

func stringEnd(text []byte, at int) int {
	for i := at + 1; i < len(text); i++ {
		n := bytes.IndexAny(text[i:], `"\`)
		if n < 0 {
			break
		}
		if i += n; text[i] == '"' {
			return i + 1
		}
		i++ // the escaped character
	}
	return len(text)
}

func keyIn(text []byte) (key string) {
	if bytes.IndexByte(text, '\\') < 0 && len(text) > 1 {
		return string(text[1 : len(text)-1])
	}
	_ = json.Unmarshal(text, &key) // else it is no key of the decoder, either
	return key
}

// container returns how a value of type t is decoded from an object or a list.
func (s *sizes) container(t reflect.Type, object bool) container {
	c := container{object: object, key: object}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return c
	case object && t.Kind() == reflect.Struct:
		c.fields = s.fieldsOf(t)
		return c
	case object && t.Kind() == reflect.Map, !object && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		c.elem = t.Elem()
	case t.Kind() == reflect.Interface: // map[string]any or []any
		c.elem = t
	default:
		return c
	}
	// A list grows by a copy.
	c.each = 2*int64(c.elem.Size()) + pointed(c.elem)
	if object {
		slot := int64(reflect.TypeFor[string]().Size()) + min(int64(c.elem.Size()), indirect)
		c.each, c.first = 2*slot+key+pointed(c.elem), group*slot
		if c.elem.Size() > indirect {
			c.each += int64(c.elem.Size())
		}
	}
	return c
}

// pointed returns the size of what a decoder allocates for a value of type t.
func pointed(t reflect.Type) (size int64) {
	for ; t != nil && t.Kind() == reflect.Pointer; t = t.Elem() {
		size += int64(t.Elem().Size())
	}
	if t != nil && t.Kind() == reflect.Interface {
		size += header
	}
	return size
}

func (s *sizes) fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := s.fields.Load(t); ok {
		return known.(map[string]reflect.Type) //nolint:forcetypeassert // stored below
	}
	fields, depths := map[string]reflect.Type{}, map[string]int{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported(), name == "" && f.Anonymous:
			continue
		case name == "":
			name = f.Name
		}
		if depth, ok := depths[name]; !ok || len(f.Index) < depth {
			fields[name], depths[name] = f.Type, len(f.Index)
		}
	}
	s.fields.Store(t, fields)
	return fields
}
