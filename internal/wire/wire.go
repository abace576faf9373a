// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire works on the bytes of Kubernetes objects in JSON, protobuf and CBOR, so that most of
// an object need not be decoded. No function panics, whatever the bytes are.
//
// [Read] returns parts of an object's metadata, without allocations for JSON and protobuf: the byte
// slices of [Metadata] alias the input. The beginning of an object is enough. Fields that it cannot
// read stay empty, and it does not validate the rest.
//
// [Compact] is strict. It returns the whole object without its managed fields, for a decoder to
// read later, or an error. After an error, the caller decodes the object, encodes it and compacts
// the result. Compact then fails only without metadata, or if an unstructured object has metadata
// of the wrong types. [Unwrap] and [Event] find the object in an envelope and in a watch event.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// Format is the encoding of an object.
type Format uint8

// The formats. Unknown is any other.
const (
	Unknown Format = iota
	JSON
	Protobuf
	CBOR
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
	case mediaType == "application/cbor" || strings.HasSuffix(mediaType, "+cbor"):
		return CBOR
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
	case CBOR:
		return readCBOR(data, o)
	}
	return Metadata{}, false
}

// readCBOR reads the whole input as JSON. Kubernetes' encoder sorts fields by length, so metadata
// comes after spec and status, and a beginning is no use.
func readCBOR(data []byte, o Options) (Metadata, bool) {
	text, err := CBORToJSON(data)
	if err != nil {
		return Metadata{}, false
	}
	return readJSON(text, o)
}

// CBORToJSON returns an object in CBOR as JSON. A decoder reads the same values from both, typed or
// not: byte strings and times become strings, as in apimachinery, and 1.0 does not become 1. It
// fails for byte strings that are not UTF-8.
func CBORToJSON(data []byte) ([]byte, error) {
	var all map[string]any
	if err := direct.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("wire: CBOR: %w", err)
	}
	exact, ok := exactJSON(all)
	if !ok {
		return nil, errors.New("wire: CBOR has a string that is not UTF-8")
	}
	text, err := json.Marshal(exact)
	if err != nil {
		return nil, fmt.Errorf("wire: CBOR as JSON: %w", err)
	}
	return text, nil
}

// exactJSON gives floating-point numbers that JSON would write as integers an exponent. ok reports
// that JSON can express all strings.
func exactJSON(value any) (_ any, ok bool) {
	ok = true
	switch value := value.(type) {
	case map[string]any:
		for k, v := range value {
			exact, valid := exactJSON(v)
			value[k], ok = exact, ok && valid && utf8.ValidString(k)
		}
	case []any:
		for i, v := range value {
			exact, valid := exactJSON(v)
			value[i], ok = exact, ok && valid
		}
	case string:
		return value, utf8.ValidString(value)
	case float64:
		if value == math.Trunc(value) {
			return json.Number(strconv.FormatFloat(value, 'e', -1, 64)), true
		}
	}
	return value, ok
}
