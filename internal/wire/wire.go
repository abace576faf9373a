// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire works on the bytes of Kubernetes objects in JSON and protobuf, so that most of an
// object need not be decoded. No function panics, whatever the bytes are.
//
// [Read] returns parts of an object's metadata, without allocations: the byte slices of [Metadata]
// alias the input. The beginning of an object is enough. Fields that it cannot read stay empty, and
// it does not validate the rest.
//
// [Compact] is strict. It returns the whole object without its managed fields, for a decoder to
// read later, or an error. After an error, the caller decodes the object, encodes it and compacts
// the result. Compact then fails only without metadata, or if an unstructured object has metadata
// of the wrong types. [Unwrap] and [Event] find the object in an envelope and in a watch event.
package wire

import "strings"

// Format is the encoding of an object.
type Format uint8

// The formats. Unknown is any other.
const (
	Unknown Format = iota
	JSON
	Protobuf
)

// FormatOf returns the format of a Content-Type. It takes YAML for JSON: an apply patch has YAML's
// content type, and may be JSON.
func FormatOf(contentType string) Format {
	mediaType, params, _ := strings.Cut(contentType, ";")
	mediaType = strings.TrimSpace(mediaType)
	switch {
	case strings.Contains(params, "stream="):
		return Unknown
	case mediaType == "application/vnd.kubernetes.protobuf":
		return Protobuf
	case mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") || strings.HasSuffix(mediaType, "+yaml"):
		return JSON
	}
	return Unknown
}

// Read reads one object. whole reports that data was read to its end and is well-formed up to
// there.
func Read(f Format, data []byte, o Options) (obj Metadata, whole bool) {
	switch f {
	case JSON:
		return readJSON(data, o)
	case Protobuf:
		return readProtobuf(data, o)
	}
	return Metadata{}, false
}
