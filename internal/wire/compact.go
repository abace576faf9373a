// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
)

// Compact returns the object in data without its managed fields, or with them if keep is set. f is
// JSON or Protobuf; data is a JSON object, or a protobuf message without its envelope. A decoder of
// the object's kind, or of unstructured objects, makes the same of Data as of data.
//
// The error describes what is wrong with data, or what decoders read in different ways, such as
// duplicate keys in metadata. So a decoder may accept data.
//
// A decoder may also refuse Data. Of protobuf, Compact checks only the fields of the object and of
// its metadata. Of JSON, it checks the syntax of everything, and the types in metadata that it
// reads. In the managed fields that it removes, it checks only the syntax of JSON.
func Compact(f Format, data []byte, keep bool) (Compacted, error) {
	switch f {
	case JSON:
		return compactJSON(data, keep)
	case Protobuf:
		return compactProtobuf(data, keep)
	}
	return Compacted{}, errors.New("wire: an object is neither JSON nor protobuf; decode it")
}

// Fields returns an ObjectMeta with only the named field, for a decoder of ObjectMeta. meta is
// Data[MetaStart:MetaEnd] of a Compacted. name is the name in JSON, such as "ownerReferences". The
// result is empty, or {} in JSON, if the field is missing.
func Fields(f Format, meta, name string) []byte {
	if f == JSON {
		return jsonField(meta, name)
	}
	var out []byte
	number := metaField(name)
	for m := (fields{rest: []byte(meta)}); ; {
		before := m.rest
		if !m.next() {
			return out
		}
		if m.number == number {
			out = append(out, before[:len(before)-len(m.rest)]...)
		}
	}
}

func jsonField(meta, name string) []byte {
	s := jsonScanner{data: []byte(meta)}
	for key := range s.fields {
		found := string(key) == name
		s.is(0) // skips space
		start := s.at
		s.skip()
		if found && s.err == "" {
			return fmt.Appendf(nil, `{"%s":%s}`, name, meta[start:s.at])
		}
	}
	return []byte("{}")
}
