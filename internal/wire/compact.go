// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Compacted is an object's bytes without metadata.managedFields, and what Compact has read in them.
type Compacted struct {
	// Data is a copy, and never aliases the input.
	Data string
	// MetaStart and MetaEnd are where the ObjectMeta is in Data: the body of the protobuf message,
	// or the JSON object with its braces.
	MetaStart, MetaEnd int

	// APIVersion and Kind are read in JSON only; protobuf has them in the envelope.
	APIVersion, Kind string
	// Name and the like are parts of Data, except strings with escapes in JSON.
	Name, Namespace, UID, ResourceVersion string
	Generation                            int64
	// Deleting reports a deletionTimestamp.
	Deleting bool
	// Owners, Labels, Annotations and Finalizers report that the field is not empty.
	Owners, Labels, Annotations, Finalizers bool
}

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

// metaField returns the number of a field of ObjectMeta in protobuf, by its name in JSON, or 0.
func metaField[T string | []byte](name T) protowire.Number {
	switch string(name) {
	case "name":
		return metaName
	case "generateName":
		return metaGenerateName
	case "namespace":
		return metaNamespace
	case "selfLink":
		return metaSelfLink
	case "uid":
		return metaUID
	case "resourceVersion":
		return metaResourceVersion
	case "generation":
		return metaGeneration
	case "creationTimestamp":
		return metaCreation
	case "deletionTimestamp":
		return metaDeletion
	case "deletionGracePeriodSeconds":
		return metaGrace
	case "labels":
		return metaLabels
	case "annotations":
		return metaAnnotations
	case "ownerReferences":
		return metaOwners
	case "finalizers":
		return metaFinalizers
	case "managedFields":
		return metaManaged
	}
	return 0
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

// layout is what Compact finds in the input. meta and cut are parts of object.
type layout struct {
	object, meta, cut span

	head    [1 + binary.MaxVarintLen64]byte // replaces what comes before object
	headLen int

	apiVersion, kind span
	texts            [metaResourceVersion + 1]span // by the number of a field, like the next two
	filled           [metaFinalizers + 1]bool
	seen             uint32
	generation       int64
}

// span is a part of the input, or the text of a JSON string with escapes.
type span struct {
	from, to  int
	unescaped string
}

// first reports whether a field occurs for the first time.
func (l *layout) first(number protowire.Number) bool {
	before := l.seen
	l.seen |= 1 << number
	return l.seen != before
}

// compacted copies the object.
func (l *layout) compacted(data []byte) Compacted {
	if l.cut.to == 0 {
		l.cut = span{from: l.object.from, to: l.object.from}
	}
	var b strings.Builder
	b.Grow(l.headLen + l.object.to - l.object.from - (l.cut.to - l.cut.from))
	b.Write(l.head[:l.headLen])
	b.Write(data[l.object.from:l.cut.from])
	b.Write(data[l.cut.to:l.object.to])
	out := b.String()
	return Compacted{
		Data: out, MetaStart: l.moved(l.meta.from), MetaEnd: l.moved(l.meta.to),
		APIVersion: l.part(out, l.apiVersion), Kind: l.part(out, l.kind),
		Name: l.part(out, l.texts[metaName]), Namespace: l.part(out, l.texts[metaNamespace]),
		UID: l.part(out, l.texts[metaUID]), ResourceVersion: l.part(out, l.texts[metaResourceVersion]),
		Generation: l.generation, Deleting: l.filled[metaDeletion],
		Owners: l.filled[metaOwners], Labels: l.filled[metaLabels],
		Annotations: l.filled[metaAnnotations], Finalizers: l.filled[metaFinalizers],
	}
}

// moved returns where an offset of the input is in Data.
func (l *layout) moved(offset int) int {
	if offset >= l.cut.to {
		offset -= l.cut.to - l.cut.from
	}
	return offset - l.object.from + l.headLen
}

func (l *layout) part(data string, s span) string {
	if s.to == 0 {
		return s.unescaped
	}
	return data[l.moved(s.from):l.moved(s.to)]
}
