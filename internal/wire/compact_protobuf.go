// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

var errTruncated = errors.New("the message is truncated, or a field has no valid type")

func compactProtobuf(data []byte, keep bool) (Compacted, error) {
	var l layout
	top := fields{rest: data}
	if !top.next() || top.number != ObjectMetadata || top.kind != protowire.BytesType {
		return Compacted{}, errors.New("wire: protobuf: the object does not begin with its metadata")
	}
	l.object, l.meta = span{from: top.span(len(data)).from, to: len(data)}, top.span(len(data))
	if err := l.readProtobuf(data[:l.meta.to], keep); err != nil {
		return Compacted{}, fmt.Errorf("wire: protobuf: metadata: %w", err)
	}
	for top.next() {
		if top.number == ObjectMetadata || top.group() {
			return Compacted{}, fmt.Errorf("wire: protobuf: a second metadata, or field %d is a group", top.number)
		}
	}
	if !top.whole {
		return Compacted{}, fmt.Errorf("wire: protobuf: %w", errTruncated)
	}
	head := protowire.AppendTag(l.head[:0], ObjectMetadata, protowire.BytesType)
	l.headLen = len(protowire.AppendVarint(head, uint64(l.meta.to-l.meta.from-(l.cut.to-l.cut.from))))
	return l.compacted(data), nil
}

// readProtobuf reads the metadata at the end of data.
func (l *layout) readProtobuf(data []byte, keep bool) error {
	m := fields{rest: data[l.meta.from:]}
	for before := l.meta.from; m.next(); before = len(data) - len(m.rest) {
		known, want := m.number <= metaFinalizers || m.number == metaManaged, protowire.BytesType
		if m.number == metaGeneration || m.number == metaGrace {
			want = protowire.VarintType
		}
		switch {
		case m.group() || known && m.kind != want:
			return fmt.Errorf("field %d has the type %d", m.number, m.kind)
		case m.number <= metaGrace && !l.first(m.number):
			return fmt.Errorf("field %d occurs twice", m.number)
		case m.number <= metaResourceVersion:
			l.texts[m.number] = m.span(len(data))
		case m.number == metaGeneration:
			l.generation = int64(m.value) //nolint:gosec // a varint is the two's complement
		case m.number <= metaFinalizers:
			l.filled[m.number] = true
		case m.number == metaManaged && !keep:
			if l.cut.to == 0 {
				l.cut = span{from: before, to: before}
			}
			if l.cut.to != before {
				return errors.New("other fields between the managedFields")
			}
			l.cut.to = len(data) - len(m.rest)
		}
	}
	if !m.whole {
		return errTruncated
	}
	return nil
}

// group reports a field that this package does not read.
func (f *fields) group() bool {
	return f.kind == protowire.StartGroupType || f.kind == protowire.EndGroupType
}

// span returns where bytes is, given the offset of the end of the message.
func (f *fields) span(end int) span {
	to := end - len(f.rest)
	return span{from: to - len(f.bytes), to: to}
}
