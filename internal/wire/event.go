// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Event returns the type of a watch event, and its object, which aliases frame. f is JSON or
// Protobuf; there, the object has an envelope, but the frame has none.
func Event(f Format, frame []byte) (eventType string, object []byte, err error) {
	switch f {
	case JSON:
		return eventJSON(frame)
	case Protobuf:
		return eventProtobuf(frame)
	}
	return "", nil, errors.New("wire: a watch event is neither JSON nor protobuf; decode it")
}

// eventJSON reads {"type":…,"object":…}.
func eventJSON(frame []byte) (eventType string, object []byte, err error) {
	s := jsonScanner{data: frame}
	s.want('{', "an object")
	for key := range s.fields {
		switch {
		case string(key) == "type" && eventType == "" && s.want('"', "a string"):
			eventType = string(s.text())
		case string(key) == "object" && object == nil && s.want('{', "an object"):
			start := s.at
			s.skip()
			object = frame[start:s.at]
		case string(key) == "type" || string(key) == "object":
			s.fail("more than one " + string(key) + " of a watch event")
		default:
			s.skip()
		}
	}
	s.end()
	if eventType == "" || object == nil || !utf8.ValidString(eventType) {
		s.fail("no type or no object of a watch event")
	}
	if s.err != "" {
		return "", nil, fmt.Errorf("wire: watch event in JSON at byte %d: %s", s.at, s.err)
	}
	return eventType, object, nil
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
	parts, err := messages(data, UnknownTypeMeta, UnknownRaw, UnknownContentEncoding, UnknownContentType)
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
			return out, fmt.Errorf("field %d is a group", f.number)
		}
		for i, number := range numbers {
			if f.number != number {
				continue
			}
			if f.kind != protowire.BytesType || out[i] != nil {
				return out, fmt.Errorf("field %d occurs twice, or has the type %d", number, f.kind)
			}
			out[i] = f.bytes
		}
	}
	if !f.whole {
		return out, errTruncated
	}
	return out, nil
}

// eventProtobuf reads a metav1.WatchEvent, which has no envelope in a watch.
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
