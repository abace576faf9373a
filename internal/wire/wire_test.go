// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var formats = map[string]wire.Format{"JSON": wire.JSON, "protobuf": wire.Protobuf}

// encode writes an object of v1, or of another group-version that is given.
func encode(t testing.TB, f wire.Format, obj runtime.Object, gv schema.GroupVersion) []byte {
	t.Helper()
	var err error
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(gv.WithKind(reflect.TypeOf(obj).Elem().Name()))
	var out bytes.Buffer
	switch f {
	case wire.JSON:
		err = json.NewEncoder(&out).Encode(obj)
	case wire.Protobuf:
		err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &out)
	}
	testkit.NoError(t, err)
	return out.Bytes()
}

func pod() *corev1.Pod {
	grace, now := int64(30), metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", GenerateName: "p-", Namespace: "ns", UID: "u1", ResourceVersion: "77", Generation: 3,
			Labels: map[string]string{"name": "not me", "uid": `an odd " and { and \`}, CreationTimestamp: now,
			DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace, Finalizers: []string{"a/b"},
			OwnerReferences: []metav1.OwnerReference{{Name: "owner", UID: "other", Kind: "X"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:name":{}}}`)}},
		},
		Spec:   corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// text makes an object readable and comparable.
func text(o wire.Metadata) string {
	data, err := json.Marshal(struct {
		Kind, Name, Namespace, UID, Version    string
		Generation, Grace                      int64
		Deleting, Finalizers, Metadata, DryRun bool
		Status, StatusName, StatusUID, Must    string
	}{
		string(o.Kind), string(o.Name), string(o.Namespace), string(o.UID), string(o.ResourceVersion),
		o.Generation, o.Grace, o.Deleting, o.Finalizers, o.Metadata, o.DryRun,
		string(o.Status), string(o.StatusName), string(o.StatusUID), string(o.Precondition),
	})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func b(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func objectOf(kind string, m metav1.ObjectMeta) wire.Metadata {
	o := wire.Metadata{
		Kind: b(kind), Name: b(m.Name), Namespace: b(m.Namespace), UID: b(string(m.UID)), ResourceVersion: b(m.ResourceVersion),
		Generation: m.Generation, Deleting: m.DeletionTimestamp != nil, Finalizers: len(m.Finalizers) > 0, Metadata: true,
	}
	if m.DeletionGracePeriodSeconds != nil {
		o.Grace = *m.DeletionGracePeriodSeconds
	}
	return o
}

func TestRead(t *testing.T) {
	v1, uid := corev1.SchemeGroupVersion, types.UID("u1")
	plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "ns", UID: "u2", ResourceVersion: "5"}, Data: map[string]string{"kind": "x"}}
	options := metav1.DeleteOptions{DryRun: []string{"All"}, Preconditions: &metav1.Preconditions{UID: &uid}}
	for name, c := range map[string]struct {
		obj  runtime.Object
		gv   schema.GroupVersion
		want wire.Metadata
	}{
		"object": {pod(), v1, objectOf("Pod", pod().ObjectMeta)},
		"plain":  {plain, v1, objectOf("ConfigMap", plain.ObjectMeta)},
		"status": {
			&metav1.Status{Status: "Success", Details: &metav1.StatusDetails{Name: "m", Kind: "configmaps", UID: "u3"}}, v1,
			wire.Metadata{Kind: b("Status"), Status: b("Success"), StatusName: b("m"), StatusUID: b("u3"), Metadata: true},
		},
		"delete options":          {&options, v1, wire.Metadata{Kind: b("DeleteOptions"), DryRun: true, Precondition: b("u1")}},
		"delete options, nothing": {&metav1.DeleteOptions{}, v1, wire.Metadata{Kind: b("DeleteOptions")}},
		"eviction": {
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}, DeleteOptions: &options}, policyv1.SchemeGroupVersion,
			wire.Metadata{Kind: b("Eviction"), Name: b("p"), DryRun: true, Precondition: b("u1"), Metadata: true},
		},
	} {
		for format, f := range formats {
			got, whole := wire.Read(f, encode(t, f, c.obj, c.gv), wire.Options{})
			testkit.Equal(t, text(got), text(c.want), name, format)
			testkit.Equal(t, whole, true, name, format)
		}
	}
}

func TestReadLists(t *testing.T) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*pod(), {ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "u2"}}}}
	table := &metav1.Table{Rows: []metav1.TableRow{
		{Cells: []any{"p"}, Object: runtime.RawExtension{Raw: []byte(`{"kind":"PartialObjectMetadata","metadata":{"name":"p","uid":"u1"}}`)}},
		{Cells: []any{"q"}, Object: runtime.RawExtension{Raw: []byte(`{"kind":"PartialObjectMetadata","metadata":{"name":"q","uid":"u2"}}`)}},
		{Cells: []any{"none"}},
	}}
	for name, c := range map[string]struct {
		obj  runtime.Object
		gv   schema.GroupVersion
		only string
	}{"list": {list, corev1.SchemeGroupVersion, ""}, "table": {table, metav1.SchemeGroupVersion, "JSON"}} {
		for format, f := range formats {
			if c.only != "" && c.only != format {
				continue
			}
			var items []wire.Metadata
			_, whole := wire.Read(f, encode(t, f, c.obj, c.gv), wire.Options{Items: &items})
			var got []string
			for _, o := range items {
				got = append(got, string(o.Name)+" "+string(o.UID))
			}
			testkit.DeepEqual(t, got, []string{"p u1", "q u2"}, name, format)
			testkit.Equal(t, whole, true, name, format)
		}
	}
}

// A beginning gives the same result as the whole, or reports that it is not enough.
func TestReadBeginnings(t *testing.T) {
	for format, f := range formats {
		data := encode(t, f, pod(), corev1.SchemeGroupVersion)
		first := 0
		for n := range data {
			got, whole := wire.Read(f, data[:n], wire.Options{Enough: true})
			if got.Metadata && text(got) != text(objectOf("Pod", pod().ObjectMeta)) {
				t.Fatalf("%s: the first %d of %d bytes give %s (whole: %v)", format, n, len(data), text(got), whole)
			}
			if got.Stored() && first == 0 {
				first = n
			}
		}
		testkit.NotEqual(t, first, 0, format, "the metadata is not seen before the end")
	}
}

func TestReadOddJSON(t *testing.T) {
	for data, want := range map[string]wire.Metadata{
		`{}`: {},
		` { "metadata" : { "name" : "a" , "uid" : "\u0062\"" } , "kind" : "K" } `: {Kind: b("K"), Name: b("a"), UID: b(`b"`), Metadata: true},
		`{"metadata":null,"kind":7}`: {},
		`{"metadata":{"deletionTimestamp":null,"finalizers":[],"resourceVersion":"x:1"}}`: {ResourceVersion: b("x:1"), Metadata: true},
		`{"metadata":{"deletionTimestamp":"now","finalizers":null,"generation":"x"}}`:     {Deleting: true, Metadata: true},
		`{"data":{"metadata":{"name":"no"}},"metadata":{"name":"yes"}}`:                   {Name: b("yes"), Metadata: true},
		`{"status":{"status":"no","details":[1,{"a":"]"}]},"details":{"name":"n"}}`:       {StatusName: b("n")},
	} {
		if got, whole := wire.Read(wire.JSON, []byte(data), wire.Options{}); text(got) != text(want) || !whole {
			t.Errorf("%s is %s (whole: %v), want %s", data, text(got), whole, text(want))
		}
	}
	for _, data := range []string{``, `x`, `[]`, `"`, `{`, `{"a`, `{"a":`, `{"a":1`, `{"a":1,`, `{"metadata":{"name":"x\`, `{"a" 1}`, `{"a":[1 2}`} {
		if got, whole := wire.Read(wire.JSON, []byte(data), wire.Options{}); whole || got.Metadata {
			t.Errorf("%s is %s and whole", data, text(got))
		}
	}
}

func TestFormatOf(t *testing.T) {
	for contentType, want := range map[string]wire.Format{
		"application/json": wire.JSON, "application/json; charset=utf-8": wire.JSON, "application/json;as=Table;g=meta.k8s.io;v=v1": wire.JSON,
		"application/merge-patch+json": wire.JSON, "application/apply-patch+yaml": wire.JSON,
		"application/vnd.kubernetes.protobuf": wire.Protobuf, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata": wire.Protobuf,
		"application/cbor": wire.Unknown, "application/apply-patch+cbor": wire.Unknown,
		"application/json;stream=watch": wire.Unknown, "application/cbor-seq": wire.Unknown, "application/yaml": wire.Unknown, "text/plain": wire.Unknown, "": wire.Unknown,
	} {
		testkit.Equal(t, wire.FormatOf(contentType), want, contentType)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	for format, f := range formats {
		data := encode(t, f, pod(), corev1.SchemeGroupVersion)
		testkit.Equal(t, testing.AllocsPerRun(100, func() { wire.Read(f, data, wire.Options{Enough: true}) }), 0, format, "allocations")
	}
}

// FuzzJSON compares with encoding/json: what that can decode is read in the same way.
func FuzzJSON(f *testing.F) {
	f.Add(string(encode(f, wire.JSON, pod(), corev1.SchemeGroupVersion)))
	f.Add(`{"kind":"Status","status":"Success","details":{"name":"a","uid":"b"},"metadata":{}}`)
	f.Add(`{"items":[{"metadata":{"name":"a"}}],"rows":[{"object":{"metadata":{"name":"b"}}}],"metadata":{"finalizers":["x"]}}`)
	f.Add(`{"dryRun":["All"],"preconditions":{"uid":"\u0041\\"},"deleteOptions":{}}`)
	f.Fuzz(func(t *testing.T, data string) {
		got, whole := wire.Read(wire.JSON, []byte(data), wire.Options{Items: new([]wire.Metadata)})
		var m map[string]any
		if json.Unmarshal([]byte(data), &m) != nil || m == nil {
			return
		}
		if !whole {
			t.Fatalf("%s is not read to its end", data)
		}
		meta, ok := m["metadata"].(map[string]any)
		details, _ := m["details"].(map[string]any)
		finalizers, _ := meta["finalizers"].([]any)
		str := func(in map[string]any, key string) string { s, _ := in[key].(string); return s }
		want := wire.Metadata{
			Kind: b(str(m, "kind")), Name: b(str(meta, "name")), Namespace: b(str(meta, "namespace")), UID: b(str(meta, "uid")),
			ResourceVersion: b(str(meta, "resourceVersion")), Deleting: meta["deletionTimestamp"] != nil, Finalizers: len(finalizers) > 0,
			Metadata: ok, Status: b(str(m, "status")), StatusName: b(str(details, "name")), StatusUID: b(str(details, "uid")),
		}
		got.Generation, got.Grace, got.DryRun, got.Precondition = 0, 0, false, nil // floats in JSON
		if text(got) != text(want) && !strings.Contains(data, "deleteOptions") {
			t.Errorf("%s\nis   %s\nwant %s", data, text(got), text(want))
		}
	})
}

// FuzzProtobuf compares with the generated Unmarshal.
func FuzzProtobuf(f *testing.F) {
	for _, obj := range []runtime.Object{pod(), &corev1.Pod{}} {
		f.Add(encode(f, wire.Protobuf, obj, corev1.SchemeGroupVersion))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _ := wire.Read(wire.Protobuf, data, wire.Options{Items: new([]wire.Metadata)})
		var unknown runtime.Unknown
		var want corev1.Pod
		raw, ok := bytes.CutPrefix(data, []byte("k8s\x00"))
		if !ok || unknown.Unmarshal(raw) != nil || unknown.Kind != "Pod" || string(got.Kind) != "Pod" || want.Unmarshal(unknown.Raw) != nil {
			return
		}
		again := encode(t, wire.Protobuf, &want, corev1.SchemeGroupVersion)
		got, _ = wire.Read(wire.Protobuf, again, wire.Options{})
		testkit.Equal(t, text(got), text(objectOf("Pod", want.ObjectMeta)), fmt.Sprintf("%x", again))
	})
}

func BenchmarkRead(b *testing.B) {
	big := pod()
	big.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:a":"` + strings.Repeat(`x`, 900) + `"}`)
	for format, f := range formats {
		data := encode(b, f, big, corev1.SchemeGroupVersion)
		b.Run(format, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				wire.Read(f, data, wire.Options{Enough: true})
			}
		})
	}
}
