// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// Encode returns an object in a form, as an object of its own: in protobuf it has an envelope. If
// keep is true the bytes are kept for the next client; o must be a current or recent object.
func (t *Table) Encode(o *unstructured.Unstructured, f wire.Form, keep bool) ([]byte, error) {
	f.Pretty = false
	if f.Media == runtime.ContentTypeYAML {
		f.Media = ""
	}
	if f.Media == "" {
		f.Media = runtime.ContentTypeJSON
	}
	f.Version = t.Version
	if data := t.encodings[o][f]; data != nil {
		return data, nil
	}
	shown, err := t.Present(o)
	if err != nil {
		return nil, err
	}
	data, err := t.encodeObject(shown, f)
	if keep && err == nil {
		if t.encodings[o] == nil {
			t.encodings[o] = map[wire.Form][]byte{}
		}
		t.encodings[o][f] = data
	}
	return data, err
}

func (t *Table) encodeObject(o *unstructured.Unstructured, f wire.Form) ([]byte, error) {
	switch {
	case f.Partial():
		return wire.EncodePartial(o, f)
	case f.Protobuf():
		obj, err := kinds.Scheme().New(t.GV().WithKind(t.Kind))
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, obj); err != nil {
			return nil, fmt.Errorf("sim: %s %q cannot be encoded as protobuf: %w", t.Kind, o.GetName(), err)
		}
		raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
		return wire.Envelope(metav1.TypeMeta{APIVersion: t.GV().String(), Kind: t.Kind}, raw), err
	case t.BuiltIn:
		// Kind and version come first, so that the items of a list can leave them out.
		rest := maps.Clone(o.Object)
		delete(rest, "kind")
		delete(rest, "apiVersion")
		data, err := jsonvalue.Encode(rest)
		if err != nil {
			return nil, err
		}
		return append([]byte(t.TypePrefix()), data[1:]...), nil
	}
	return jsonvalue.Encode(o.Object)
}
