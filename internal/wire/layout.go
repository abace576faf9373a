// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
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
