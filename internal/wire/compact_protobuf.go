// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

func compactProtobuf(data []byte, keep bool) (Compacted, error) {
	var l layout
	top := fields{rest: data}
	for top.next() {
		switch {
		case top.number != objectMetadata:
		case l.object.to != 0 || top.kind != protowire.BytesType:
			return Compacted{}, errors.New("wire: protobuf: the metadata is not one message")
		default:
			l.meta = top.span(len(data))
			if err := l.readProtobuf(data[:l.meta.to], keep); err != nil {
				return Compacted{}, err
			}
		}
		l.object.to = len(data) // the metadata comes first
		if top.group() {
			break
		}
	}
	if !top.whole {
		return Compacted{}, errors.New("wire: protobuf: the object is cut off, or has a group")
	}
	if l.meta.to == 0 {
		return Compacted{}, errors.New("wire: protobuf: an object without metadata")
	}
	l.object.from = l.meta.from
	head := protowire.AppendTag(l.head[:0], objectMetadata, protowire.BytesType)
	l.headLen = len(protowire.AppendVarint(head, uint64(l.meta.to-l.meta.from-(l.cut.to-l.cut.from))))
	return l.compacted(data), nil
}

// readProtobuf reads the metadata at the end of data.
func (l *layout) readProtobuf(data []byte, keep bool) error {
	m := fields{rest: data[l.meta.from:]}
	for before := l.meta.from; m.next(); before = len(data) - len(m.rest) {
		want := protowire.BytesType
		if m.number == metaGeneration || m.number == metaGrace {
			want = protowire.VarintType
		}
		switch known := m.number <= metaFinalizers || m.number == metaManaged; {
		case m.group() || known && m.kind != want:
			return fmt.Errorf("wire: protobuf: field %d of metadata has type %d", m.number, m.kind)
		case m.number <= metaGrace && !l.first(m.number):
			return fmt.Errorf("wire: protobuf: metadata has more than one field %d", m.number)
		}
		s := m.span(len(data))
		switch m.number {
		case metaName:
			l.name = s
		case metaNamespace:
			l.namespace = s
		case metaUID:
			l.uid = s
		case metaResourceVersion:
			l.resourceVersion = s
		case metaGeneration:
			l.Generation = int64(m.value) //nolint:gosec // a varint is the two's complement
		case metaDeletion:
			l.Deleting = true
		case metaLabels:
			l.Labels = true
		case metaAnnotations:
			l.Annotations = true
		case metaOwners:
			l.Owners = true
		case metaFinalizers:
			l.Finalizers = true
		case metaManaged:
			if !keep && !l.extendCut(before, s.to) {
				return errors.New("wire: protobuf: the managedFields have other fields between them")
			}
		}
	}
	if !m.whole {
		return errors.New("wire: protobuf: the metadata is cut off")
	}
	return nil
}

// extendCut adds a field that follows those that are cut already.
func (l *layout) extendCut(from, to int) bool {
	if l.cut.to == 0 {
		l.cut.from = from
	} else if l.cut.to != from {
		return false
	}
	l.cut.to = to
	return true
}

// Unwrap returns the content of a protobuf envelope: the type and the bytes of an object. raw
// aliases data.
func Unwrap(data []byte) (apiVersion, kind string, raw []byte, err error) {
	data, ok := bytes.CutPrefix(data, protobufMagic)
	if !ok {
		return "", "", nil, errors.New("wire: protobuf does not begin with k8s\\x00")
	}
	if len(data) == 0 {
		return "", "", nil, errors.New("wire: a protobuf envelope is empty")
	}
	parts, err := messages(data, unknownTypeMeta, unknownRaw, unknownContentEncoding, unknownContentType)
	if err != nil {
		return "", "", nil, fmt.Errorf("wire: protobuf envelope: %w", err)
	}
	if len(parts[2])+len(parts[3]) > 0 {
		return "", "", nil, fmt.Errorf("wire: protobuf envelope: content is encoded as %q, %q", parts[2], parts[3])
	}
	types, err := messages(parts[0], typeMetaAPIVersion, typeMetaKind)
	if err != nil {
		return "", "", nil, fmt.Errorf("wire: type in a protobuf envelope: %w", err)
	}
	return string(types[0]), string(types[1]), parts[1], nil
}

// messages returns the fields with these numbers. It fails if one occurs twice.
func messages(data []byte, numbers ...protowire.Number) (out [4][]byte, err error) {
	f := fields{rest: data}
	for f.next() {
		if f.group() {
			break
		}
		for i, number := range numbers {
			if f.number != number {
				continue
			}
			if f.kind != protowire.BytesType || out[i] != nil {
				return out, fmt.Errorf("field %d is not one string or message", number)
			}
			out[i] = f.bytes
		}
	}
	if !f.whole {
		return out, errors.New("it is cut off, or has a group")
	}
	return out, nil
}

// eventProtobuf reads a metav1.WatchEvent. A watch sends it without an envelope.
func eventProtobuf(frame []byte) (eventType string, object []byte, err error) {
	event, err := messages(frame, watchEventType, watchEventObject)
	if err != nil {
		return "", nil, fmt.Errorf("wire: watch event in protobuf: %w", err)
	}
	extension, err := messages(event[1], rawExtensionRaw)
	if err != nil {
		return "", nil, fmt.Errorf("wire: object of a watch event in protobuf: %w", err)
	}
	if len(event[0]) == 0 || len(extension[0]) == 0 {
		return "", nil, errors.New("wire: no type or no object of a watch event")
	}
	return string(event[0]), extension[0], nil
}
