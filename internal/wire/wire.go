// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire reads from the bytes of a Kubernetes object who it is and which version, and no more: JSON, protobuf and CBOR,
// whole or only a beginning. What it cannot read, it leaves empty; it never panics, and has no opinion on whether the rest is
// valid.
//
// For JSON and protobuf it allocates nothing: the byte slices of an [Object] alias the input.
package wire

import (
	"bytes"
	"strings"
)

// Object is what was read of an object, or of a metav1.Status.
type Object struct {
	Kind []byte

	Name, Namespace, UID, ResourceVersion []byte
	Generation                            int64
	// Deleting says that there is a deletionTimestamp; Grace is deletionGracePeriodSeconds, 0 if there is none.
	Deleting bool
	Grace    int64
	// Finalizers says that metadata.finalizers is not empty.
	Finalizers bool
	// Metadata says that the metadata was read to its end, so that what is empty here is empty there.
	Metadata bool

	// Status, StatusName and StatusUID are of a metav1.Status: Success or Failure, and the details' name and uid.
	Status, StatusName, StatusUID []byte

	// DryRun and Precondition are of metav1.DeleteOptions, also inside an Eviction: whether dryRun is not empty, and the uid
	// of the preconditions.
	DryRun       bool
	Precondition []byte
}

// Stored says that enough was read of an object that is kept somewhere: the rest can be skipped.
func (o *Object) Stored() bool {
	return o.Metadata && len(o.UID) > 0 && len(o.ResourceVersion) > 0
}

// Format is how an object is written.
type Format uint8

// The formats. Unknown is any other.
const (
	Unknown Format = iota
	JSON
	Protobuf
	CBOR
)

// FormatOf reads a Content-Type. What is sent as YAML may be JSON, and is read if it is.
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

// Options says how to read.
type Options struct {
	// Each is called for each object of a list, and of a Table where it has them. Nil: lists are not looked into.
	Each func(Object)
	// Enough stops as soon as the object is known to be Stored.
	Enough bool
}

// Read reads one object. whole says that data was read to its end and is well-formed as far as was looked at.
func Read(f Format, data []byte, o Options) (obj Object, whole bool) {
	switch f {
	case JSON:
		return readJSON(data, o)
	case Protobuf:
		return readProtobuf(data, o)
	case CBOR:
		return readCBOR(data, o)
	}
	return Object{}, false
}

// IsList says whether the kind is that of a list, or a Table.
func (o *Object) IsList() bool {
	return bytes.HasSuffix(o.Kind, []byte("List")) || string(o.Kind) == "Table"
}
