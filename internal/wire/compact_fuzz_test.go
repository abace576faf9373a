// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// checkCompact compares what decoders make of data and of its compact form. A decoder may refuse
// only data, because of its managed fields.
func checkCompact(t *testing.T, f wire.Format, data []byte) {
	before := bytes.Clone(data)
	wire.Fields(f, string(data), "labels") // whatever the bytes are
	c, err := wire.Compact(f, data, false)
	if !bytes.Equal(data, before) {
		t.Fatalf("%q was changed", before)
	}
	var want, got corev1.Pod
	wantErr := decode(f, data, &want)
	if err != nil {
		if c != (wire.Compacted{}) {
			t.Fatalf("%q is %+v and an error", data, c)
		}
		if wantErr == nil { // the caller encodes what it has decoded
			again := bare(t, f, &want, corev1.SchemeGroupVersion.WithKind("Pod"))
			testkit.NoError(t, testkit.Err(wire.Compact(f, again, false)), data, again)
		}
		return
	}
	gotErr := decode(f, []byte(c.Data), &got)
	if gotErr != nil && wantErr == nil {
		t.Fatalf("%q is read, but %q is not: %v", data, c.Data, gotErr)
	}
	if wantErr == nil {
		want.ManagedFields = nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nis   %+v\nwant %+v", data, got, want)
		}
		checkMeta(t, c, &want)
		checkFields(t, f, c, &want.ObjectMeta)
		if f == wire.JSON && (c.APIVersion != want.APIVersion || c.Kind != want.Kind) {
			t.Fatalf("%q has the kind %q of %q", data, c.Kind, c.APIVersion)
		}
	}
	kept, err := wire.Compact(f, data, true)
	if err != nil || f == wire.JSON && kept.Data != string(bytes.TrimSpace(data)) {
		t.Fatalf("%q is kept as %q: %v", data, kept.Data, err)
	}
	again, err := wire.Compact(f, []byte(c.Data), false)
	if err != nil || again != c {
		t.Fatalf("%+v is compacted to %+v: %v", c, again, err)
	}
}

func FuzzCompactJSON(f *testing.F) {
	f.Add(bare(f, wire.JSON, pod(), corev1.SchemeGroupVersion.WithKind("Pod")))
	f.Add(bare(f, wire.JSON, &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("Pod")))
	for _, data := range []string{
		` { "metadata" : { "managedFields" : [ { } ] , "name" : "\u0078\"" , "labels" : { "a" : null , "b" : "<" } } , "x" : [ -1.5e+3 , true , { } ] } `,
		`{"metadata":{"name":null,"managedFields":null,"generation":-0,"deletionTimestamp":"2026-01-02T03:04:05+07:00"},"Metadata":{},"x":1,"x":2}`,
		`{"metadata":{"ownerReferences":[{"uid":"u","controller":true}],"finalizers":["a\\"],"annotations":{"":""},"x":"` + "\xff" + `","managedFields":[{"time":"x"}]}}`,
		`{"kind":"\ud800","metadata":{"deletionTimestamp":null,"managedFields":[{"fieldsV1":{"f:a":1e400}}]}}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkCompact(t, wire.JSON, data)
		c, err := wire.Compact(wire.JSON, data, false)
		if err != nil {
			return
		}
		if !json.Valid(data) || !json.Valid([]byte(c.Data)) || !json.Valid([]byte(c.Data[c.MetaStart:c.MetaEnd])) {
			t.Fatalf("%q is compacted to %q", data, c.Data)
		}
		var got, want unstructured.Unstructured
		wantErr := utiljson.Unmarshal(data, &want.Object)
		gotErr := utiljson.Unmarshal([]byte(c.Data), &got.Object)
		if gotErr != nil && wantErr == nil {
			t.Fatalf("%q is read, but %q is not: %v", data, c.Data, gotErr)
		}
		if wantErr == nil {
			unstructured.RemoveNestedField(want.Object, "metadata", "managedFields")
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q\nis   %+v\nwant %+v", data, got, want)
			}
			checkMeta(t, c, &want)
		}
		gvk, err := serializerjson.DefaultMetaFactory.Interpret(data)
		if v, k := gvk.ToAPIVersionAndKind(); err == nil && (c.Kind != k || c.APIVersion != v && c.APIVersion != "/") {
			t.Fatalf("%q has the kind %q of %q, want %s", data, c.Kind, c.APIVersion, gvk)
		}
	})
}

func FuzzCompactProtobuf(f *testing.F) {
	f.Add(bare(f, wire.Protobuf, pod(), corev1.SchemeGroupVersion.WithKind("Pod")))
	f.Add(bare(f, wire.Protobuf, &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("Pod")))
	for _, data := range []string{
		"\x0a\x0b\x8a\x01\x00\x0a\x01x\x8a\x01\x03\x0a\x01m", // managed fields in two places
		// and before a new field, with a long length
		"\x0a\x8a\x00\x8a\x01\x00\x8a\x01\x00\x92\x01\x00\x12\x00",
		"\x0a\x07\x38\xff\xff\xff\xff\x0f\x4a\x00\x12\x00\x1a\x00\x2d\x00\x00\x00\x00",
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkCompact(t, wire.Protobuf, data) })
}

// FuzzUnwrap compares with runtime.Unknown.
func FuzzUnwrap(f *testing.F) {
	f.Add(encode(f, wire.Protobuf, pod(), corev1.SchemeGroupVersion))
	f.Add([]byte("k8s\x00\x12\x00\x1a\x00\x22\x01x\x28\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		version, kind, raw, err := wire.Unwrap(data)
		var want runtime.Unknown
		body, ok := bytes.CutPrefix(data, []byte("k8s\x00"))
		wantErr := want.Unmarshal(body)
		ok = ok && wantErr == nil
		if err == nil && (!ok || version != want.APIVersion || kind != want.Kind || !bytes.Equal(raw, want.Raw)) {
			t.Fatalf("%q is %q %q %q, want %+v, %v", data, version, kind, raw, want, wantErr)
		}
		if err == nil || !ok || want.ContentType+want.ContentEncoding != "" {
			return
		}
		again, wantErr := want.Marshal()
		testkit.NoError(t, wantErr)
		if _, _, _, err := wire.Unwrap(append([]byte("k8s\x00"), again...)); err != nil {
			t.Fatalf("%q is decoded and encoded as %q: %v", data, again, err)
		}
	})
}

// FuzzEvent compares with the decoders of metav1.WatchEvent.
func FuzzEvent(f *testing.F) {
	event := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: []byte(`{"kind":"Pod"}`)}}
	frame, err := event.Marshal()
	testkit.NoError(f, err)
	f.Add(frame)
	f.Add([]byte(`{"type":"ADDED","object":{"kind":"Pod"}}` + "\n"))
	f.Add([]byte(` { "object" : { } , "ty\u0070e" : "\u0041" } `))
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, format := range cutFormats {
			typ, object, err := wire.Event(format, data)
			if err != nil {
				continue
			}
			var want metav1.WatchEvent
			if format == wire.JSON {
				err = utiljson.Unmarshal(data, &want)
			} else {
				err = want.Unmarshal(data)
			}
			if err != nil || typ != want.Type || !bytes.Equal(object, want.Object.Raw) {
				t.Fatalf("%q in %s is %q of %q, want %+v, %v", data, name, typ, object, want, err)
			}
		}
	})
}
