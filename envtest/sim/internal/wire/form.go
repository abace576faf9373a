// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
)

// Form is a representation of objects that a client asked for in its Accept header.
type Form struct {
	Media   string                  // a content type; "" is JSON
	Convert schema.GroupVersionKind // PartialObjectMetadata(List) or Table; empty: the object
	Pretty  bool
	Version string // of the kind; set by encode
}

// MediaTypes are the content types of an API server, in its order.
var MediaTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf}

const PartialMetadata, PartialMetadataList, AsTable = "PartialObjectMetadata", "PartialObjectMetadataList", "Table"

// Protobuf reports whether the form is protobuf.
func (f Form) Protobuf() bool { return f.Media == runtime.ContentTypeProtobuf }

// Partial reports whether the client asked for metadata only.
func (f Form) Partial() bool {
	return f.Convert.Kind == PartialMetadata || f.Convert.Kind == PartialMetadataList
}

// Possible reports whether the server has the form for a kind.
func (f Form) Possible(builtin bool) bool {
	switch meta := f.Convert.Group == metav1.GroupName && (f.Convert.Version == "v1" || f.Convert.Version == "v1beta1"); {
	case f.Convert.Empty():
		return builtin || !f.Protobuf()
	case f.Convert.Kind == AsTable:
		return meta && !f.Protobuf()
	default:
		return meta && f.Partial()
	}
}

// StreamTypes are the media types of watches.
var StreamTypes = []string{runtime.ContentTypeJSON + ";stream=watch", runtime.ContentTypeProtobuf + ";stream=watch"}

// EncodePartial returns the metadata of an object.
func EncodePartial(o *unstructured.Unstructured, f Form) ([]byte, error) {
	version := f.Convert.GroupVersion().String()
	if !f.Protobuf() {
		return jsonvalue.Encode(map[string]any{"apiVersion": version, "kind": PartialMetadata, "metadata": o.Object["metadata"]})
	}
	partial := &metav1.PartialObjectMetadata{}
	content := map[string]any{"metadata": o.Object["metadata"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, partial); err != nil {
		return nil, err
	}
	raw, err := partial.Marshal()
	return Envelope(metav1.TypeMeta{APIVersion: version, Kind: PartialMetadata}, raw), err
}

// Envelope wraps a protobuf message like the real server: with its type.
func Envelope(of metav1.TypeMeta, raw []byte) []byte {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: of.APIVersion, Kind: of.Kind}, Raw: raw}
	data, err := unknown.Marshal()
	if err != nil {
		panic(err) // it is a struct of bytes
	}
	return append([]byte("k8s\x00"), data...)
}

// Message returns the content of a protobuf envelope.
func Message(data []byte) ([]byte, error) {
	var unknown runtime.Unknown
	err := unknown.Unmarshal(data[len("k8s\x00"):])
	return unknown.Raw, err
}

// Frame appends a watch event to b. data is an encoded object.
func (f Form) Frame(b *bytes.Buffer, kind string, data []byte) error {
	if !f.Protobuf() {
		b.WriteString(`{"type":"` + kind + `","object":`)
		b.Write(data)
		b.WriteString("}\n")
		return nil
	}
	event, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: data}}).Marshal()
	if err != nil {
		return err
	}
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) //nolint:gosec // a frame is small
	b.Write(event)
	return nil
}
