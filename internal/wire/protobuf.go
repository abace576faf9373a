// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

var protobufMagic = []byte("k8s\x00")

// Field numbers, from the generated.proto files of k8s.io/apimachinery v0.37.
const (
	UnknownTypeMeta        = 1 // runtime.Unknown
	UnknownRaw             = 2
	UnknownContentEncoding = 3
	UnknownContentType     = 4
	typeMetaAPIVersion     = 1 // runtime.TypeMeta
	typeMetaKind           = 2
	watchEventType         = 1 // metav1.WatchEvent
	watchEventObject       = 2
	rawExtensionRaw        = 1 // runtime.RawExtension

	ObjectMetadata = 1 // of every object and list, and of Status
	ListItems      = 2

	metaName            = 1 // ObjectMeta
	metaGenerateName    = 2
	metaNamespace       = 3
	metaSelfLink        = 4
	metaUID             = 5
	metaResourceVersion = 6
	metaGeneration      = 7
	metaCreation        = 8
	metaDeletion        = 9
	metaGrace           = 10
	metaLabels          = 11
	metaAnnotations     = 12
	metaOwners          = 13
	metaFinalizers      = 14
	metaManaged         = 17

	statusStatus  = 2 // Status
	statusDetails = 5
	detailsName   = 1 // StatusDetails
	detailsUID    = 6

	optionsPreconditions = 2 // DeleteOptions
	optionsDryRun        = 5
	preconditionsUID     = 1 // Preconditions
	evictionOptions      = 2 // Eviction
)

// metaField returns the number of a field of ObjectMeta in protobuf, by its name in JSON, or 0.
func metaField[T string | []byte](name T) protowire.Number { return metaFields[string(name)] }

var metaFields = map[string]protowire.Number{
	"name":                       metaName,
	"generateName":               metaGenerateName,
	"namespace":                  metaNamespace,
	"selfLink":                   metaSelfLink,
	"uid":                        metaUID,
	"resourceVersion":            metaResourceVersion,
	"generation":                 metaGeneration,
	"creationTimestamp":          metaCreation,
	"deletionTimestamp":          metaDeletion,
	"deletionGracePeriodSeconds": metaGrace,
	"labels":                     metaLabels,
	"annotations":                metaAnnotations,
	"ownerReferences":            metaOwners,
	"finalizers":                 metaFinalizers,
	"managedFields":              metaManaged,
}

func readProtobuf(data []byte, o Options) (Metadata, bool) {
	data, ok := bytes.CutPrefix(data, protobufMagic)
	if !ok {
		return Metadata{}, false
	}
	var obj Metadata
	for f := (fields{rest: data}); ; {
		if !f.next() {
			return obj, f.whole
		}
		switch f.number {
		case UnknownTypeMeta:
			readField(&obj.APIVersion, f.bytes, typeMetaAPIVersion)
			readField(&obj.Kind, f.bytes, typeMetaKind)
		case UnknownRaw:
			readMessage(&obj, f.bytes, o)
			if f.cut || o.Enough && obj.Stored() {
				return obj, !f.cut
			}
		}
	}
}

func readMessage(obj *Metadata, data []byte, o Options) {
	switch kind := string(obj.Kind); {
	case kind == "DeleteOptions":
		readDeleteOptions(obj, data)
		return
	case obj.IsList():
		readList(data, o)
		return
	}
	for f := (fields{rest: data}); f.next(); {
		switch {
		case f.number == ObjectMetadata && obj.IsStatus(): // an empty ListMeta
			obj.Metadata = !f.cut
		case f.number == ObjectMetadata:
			readMetadata(obj, f)
			if o.Enough && obj.Stored() {
				return
			}
		case obj.IsStatus() && f.number == statusStatus:
			obj.Status = f.bytes
		case obj.IsStatus() && f.number == statusDetails:
			readField(&obj.StatusName, f.bytes, detailsName)
			readField(&obj.StatusUID, f.bytes, detailsUID)
		case string(obj.Kind) == "Eviction" && f.number == evictionOptions:
			readDeleteOptions(obj, f.bytes)
		}
	}
}

func readList(data []byte, o Options) {
	for f := (fields{rest: data}); o.Items != nil && f.next(); {
		if f.number == ListItems && !f.cut {
			var item Metadata
			readMessage(&item, f.bytes, Options{})
			*o.Items = append(*o.Items, item)
		}
	}
}

func readMetadata(obj *Metadata, in fields) {
	m := fields{rest: in.bytes}
	for m.next() {
		if m.cut {
			break
		}
		switch m.number {
		case metaName:
			obj.Name = m.bytes
		case metaNamespace:
			obj.Namespace = m.bytes
		case metaUID:
			obj.UID = m.bytes
		case metaResourceVersion:
			obj.ResourceVersion = m.bytes
		case metaGeneration:
			obj.Generation = int64(m.value) //nolint:gosec // a varint is the two's complement
		case metaDeletion:
			obj.Deleting = true
		case metaGrace:
			obj.Grace = int64(m.value) //nolint:gosec // a varint is the two's complement
		case metaFinalizers:
			obj.Finalizers = true
		}
	}
	obj.Metadata = m.whole && !in.cut
}

func readDeleteOptions(obj *Metadata, data []byte) {
	for f := (fields{rest: data}); f.next(); {
		switch f.number {
		case optionsDryRun:
			obj.DryRun = true
		case optionsPreconditions:
			readField(&obj.Precondition, f.bytes, preconditionsUID)
		}
	}
}

// readField sets to to the last field of that number, if there is one.
func readField(to *[]byte, data []byte, number protowire.Number) {
	for f := (fields{rest: data}); f.next(); {
		if f.number == number {
			*to = f.bytes
		}
	}
}

type fields struct {
	rest   []byte
	number protowire.Number
	kind   protowire.Type
	value  uint64 // of a varint
	bytes  []byte // of a string, message or the like
	cut    bool   // bytes is incomplete
	whole  bool   // set by the last next if the message was read to its end
}

// next reads a field. Bytes that the input cuts off are the last field.
func (f *fields) next() bool {
	f.value, f.bytes, f.whole = 0, nil, !f.cut && len(f.rest) == 0
	number, kind, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		return false
	}
	f.number, f.kind, f.rest = number, kind, f.rest[n:]
	switch kind {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(f.rest)
	case protowire.BytesType:
		if f.bytes, n = protowire.ConsumeBytes(f.rest); n < 0 {
			_, n = protowire.ConsumeVarint(f.rest) // the length
			f.cut = n >= 0
			f.bytes, f.rest = f.rest[max(n, 0):], nil
			return f.cut
		}
	default:
		n = protowire.ConsumeFieldValue(number, kind, f.rest)
	}
	f.rest = f.rest[max(n, 0):]
	return n >= 0
}
