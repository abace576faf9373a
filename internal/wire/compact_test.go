// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/wire"
	corev1 "k8s.io/api/core/v1"
)

func TestCompact(t *testing.T) {
	want := pod()
	want.ManagedFields = nil
	{
		c, err := wire.Compact(wire.JSON, encode(t, wire.JSON, pod(), corev1.SchemeGroupVersion), false)
		t.Logf("%+v %v %s", c, err, c.Data[c.MetaStart:c.MetaEnd])
		var got corev1.Pod
		if json.Unmarshal([]byte(c.Data), &got); !bytes.Equal(encode(t, wire.JSON, &got, corev1.SchemeGroupVersion), encode(t, wire.JSON, want, corev1.SchemeGroupVersion)) {
			t.Error(got)
		}
		t.Logf("%s", wire.Fields(wire.JSON, c.Data[c.MetaStart:c.MetaEnd], "labels"))
	}
	{
		v, k, raw, err := wire.Unwrap(encode(t, wire.Protobuf, pod(), corev1.SchemeGroupVersion))
		t.Log(v, k, err)
		c, err := wire.Compact(wire.Protobuf, raw, false)
		t.Logf("%+v %v %s", c, err, c.Data[c.MetaStart:c.MetaEnd])
		var got corev1.Pod
		if err := got.Unmarshal([]byte(c.Data)); err != nil || !bytes.Equal(encode(t, wire.JSON, &got, corev1.SchemeGroupVersion), encode(t, wire.JSON, want, corev1.SchemeGroupVersion)) {
			t.Error(got, err, reflect.DeepEqual(&got, want))
		}
		t.Logf("%s", wire.Fields(wire.Protobuf, c.Data[c.MetaStart:c.MetaEnd], "labels"))
	}
}

func BenchmarkCompact(b *testing.B) {
	raw := map[wire.Format][]byte{wire.JSON: encode(b, wire.JSON, pod(), corev1.SchemeGroupVersion)}
	_, _, raw[wire.Protobuf], _ = wire.Unwrap(encode(b, wire.Protobuf, pod(), corev1.SchemeGroupVersion))
	for name, f := range map[string]wire.Format{"JSON": wire.JSON, "protobuf": wire.Protobuf} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw[f])))
			for b.Loop() {
				if _, err := wire.Compact(f, raw[f], false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
