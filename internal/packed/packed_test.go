// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pods returns a codec of Pods.
func pods() *packed.Codec {
	return codec(corev1.SchemeGroupVersion.WithKind("Pod"), &intake{empty: &corev1.Pod{}})
}

func codec(kind schema.GroupVersionKind, in *intake) *packed.Codec {
	return &packed.Codec{Decoded: storage.Decoded{Kind: kind, New: in.New}, Intake: in}
}

// intake stores objects as they are.
type intake struct {
	empty   object.Object
	refused error // the last one
}

func (in *intake) New() object.Object { return in.empty.DeepCopyObject().(object.Object) }

func (*intake) Intern(s string) string { return strings.Clone(s) }

func (in *intake) Refuse(_ object.Object, err error) { in.refused = err }

// read reads an object that can be packed.
func read(c *packed.Codec, f wire.Format, data []byte) (*packed.Object, error) {
	o, err := c.Read(f, data)
	p, _ := o.(*packed.Object)
	return p, err
}

// pod has all metadata that an object can have.
func pod() *corev1.Pod {
	grace, now := int64(30), metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", GenerateName: "p-", Namespace: "ns", UID: "u1", ResourceVersion: "77", Generation: 3,
			CreationTimestamp: now, DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace,
			Labels: map[string]string{"a": "1", "b": "2"}, Annotations: map[string]string{"c": `an odd " and { and \`},
			OwnerReferences: []metav1.OwnerReference{{Name: "owner", UID: "other", Kind: "X", APIVersion: "v1"}, {Name: "second", UID: "one", Kind: "Y", APIVersion: "v1"}},
			Finalizers:      []string{"a/b", "c/d"},
		},
		Spec:   corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

var managed = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:name":{}}}`)}}

// encode returns an object as it is on the wire, without an envelope.
func encode(t testing.TB, f wire.Format, p *corev1.Pod) []byte {
	t.Helper()
	var data []byte
	var err error
	if f == wire.Protobuf {
		data, err = p.Marshal()
	} else {
		data, err = json.Marshal(p)
	}
	testkit.NoError(t, err)
	return data
}

func decodeInto(f wire.Format, data []byte, p *corev1.Pod) error {
	if f == wire.Protobuf {
		return p.Unmarshal(data)
	}
	return utiljson.Unmarshal(data, p)
}

// getters calls all getters.
func getters(o metav1.Object) []any {
	var values []any
	of := reflect.TypeFor[metav1.Object]()
	for n := range of.NumMethod() {
		if name := of.Method(n).Name; strings.HasPrefix(name, "Get") {
			values = append(values, name, reflect.ValueOf(o).MethodByName(name).Call(nil)[0].Interface())
		}
	}
	return values
}

// TestF3_Formats: in each format, a packed object has the metadata of the decoded one, and decodes
// to it. It lacks only managedFields, unless the codec keeps them.
func TestF3_Formats(t *testing.T) {
	for name, f := range map[string]wire.Format{"JSON": wire.JSON, "protobuf": wire.Protobuf} {
		t.Run(name, func(t *testing.T) {
			for _, keep := range []bool{false, true} {
				want := pod()
				want.ManagedFields = managed
				data := encode(t, f, want)
				if !keep {
					want.ManagedFields = nil
				}
				c := pods()
				c.KeepManagedFields = keep
				o, err := read(c, f, data)
				testkit.NoError(t, err)
				clear(data) // which o does not refer to
				testkit.DeepEqual(t, getters(o), getters(want))
				if uids, ok := o.OwnerUIDs(); !ok || !slices.Equal(uids, []string{"other", "one"}) {
					t.Errorf("got the owners %q", uids)
				}
				testkit.Equal(t, c.Decodes(), 0, "a getter decoded the whole object")
				got, err := o.Decode()
				testkit.Equal(t, err, nil)
				testkit.DeepEqual(t, got, want)
			}
		})
	}
}

// TestObject_Setters: each setter changes the object as it would change the decoded one.
func TestObject_Setters(t *testing.T) {
	later := metav1.NewTime(time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	grace := int64(5)
	for name, set := range map[string]func(metav1.Object){
		"namespace":  func(o metav1.Object) { o.SetNamespace("x") },
		"name":       func(o metav1.Object) { o.SetName("x") },
		"generated":  func(o metav1.Object) { o.SetGenerateName("x") },
		"uid":        func(o metav1.Object) { o.SetUID(types.UID("x")) },
		"version":    func(o metav1.Object) { o.SetResourceVersion("x") },
		"generation": func(o metav1.Object) { o.SetGeneration(9) },
		"link":       func(o metav1.Object) { o.SetSelfLink("x") },
		"creation":   func(o metav1.Object) { o.SetCreationTimestamp(later) },
		"deletion":   func(o metav1.Object) { o.SetDeletionTimestamp(&later) },
		"grace":      func(o metav1.Object) { o.SetDeletionGracePeriodSeconds(&grace) },
		"labels":     func(o metav1.Object) { o.SetLabels(map[string]string{"x": "y"}) },
		"annotation": func(o metav1.Object) { o.SetAnnotations(nil) },
		"finalizers": func(o metav1.Object) { o.SetFinalizers([]string{"x/y"}) },
		"owners":     func(o metav1.Object) { o.SetOwnerReferences(nil) },
		"managers":   func(o metav1.Object) { o.SetManagedFields(managed) },
	} {
		for _, f := range []wire.Format{wire.JSON, wire.Protobuf} {
			c := pods()
			c.KeepManagedFields = true
			o, err := read(c, f, encode(t, f, pod()))
			testkit.NoError(t, err)
			before := o.DeepCopyObject()
			if _, err := o.Shared(); err != nil { // it must not be returned after the change
				t.Fatal(err)
			}
			want := pod()
			set(want)
			set(o)
			if got, err := o.Shared(); err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(getters(o), getters(want)) {
				t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, want)
			}
			if got, err := before.(*packed.Object).Decode(); err != nil || !reflect.DeepEqual(got, pod()) {
				t.Errorf("%s: a copy has changed: %+v, %v", name, got, err)
			}
		}
	}
}

// TestF2_Shared: Shared decodes once for several callers, Decode gives each its own.
func TestF2_Shared(t *testing.T) {
	c := pods()
	c.Keep() // or the garbage collector may run between the reads
	o, err := read(c, wire.Protobuf, encode(t, wire.Protobuf, pod()))
	testkit.NoError(t, err)
	first, _ := o.Shared()
	second, _ := o.Shared()
	own, _ := o.Decode()
	testkit.NotEqual(t, own, first)
	testkit.DeepEqual(t, own, first)
	testkit.Equal(t, first, second)
	testkit.Equal(t, c.Decodes(), 1)
}

// TestF1_CodecFallback (F1): what Compact does not take, but the decoder does, is packed from the
// decoded object.
func TestF1_CodecFallback(t *testing.T) {
	twice := `{"metadata":{"name":"a","labels":{"a":"b"}},"metadata":{"namespace":"ns","managedFields":[{}]},"spec":{"nodeName":"n"}}`
	o, err := read(pods(), wire.JSON, []byte(twice))
	testkit.NoError(t, err)
	var want corev1.Pod
	testkit.NoError(t, json.Unmarshal([]byte(twice), &want))
	want.ManagedFields = nil
	if got, err := o.Decode(); err != nil || !reflect.DeepEqual(got, &want) || !reflect.DeepEqual(getters(o), getters(&want)) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// TestCodec_BadInput: bytes that the decoder refuses are an error of Read, or of Decode if Read
// cannot know.
func TestCodec_BadInput(t *testing.T) {
	for name, c := range map[string]struct {
		format wire.Format
		data   string
		why    string
	}{
		"empty":                  {wire.JSON, ``, "it cannot be decoded"},
		"null":                   {wire.JSON, `null`, "it has no name"},
		"an array":               {wire.JSON, `[]`, "it cannot be decoded"},
		"truncated":              {wire.JSON, `{"metadata":{"name":"a"}`, "it cannot be decoded"},
		"NaN":                    {wire.JSON, `{"metadata":{"name":"a","generation":NaN}}`, "it cannot be decoded"},
		"another type":           {wire.JSON, `{"metadata":{"name":"a"},"spec":"x"}`, "it cannot be decoded"},
		"another kind":           {wire.JSON, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}`, "it is a Node of v1, not a Pod of v1"},
		"deep":                   {wire.JSON, `{"metadata":{"name":"a"},"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, "it cannot be decoded"},
		"truncated protobuf":     {wire.Protobuf, "\x0a\x0a\x0a", "it cannot be decoded"},
		"protobuf of other type": {wire.Protobuf, "\x0a\x03\x0a\x01a\x12\x01x", "it cannot be decoded"},
	} {
		t.Run(name, func(t *testing.T) {
			in := &intake{empty: &corev1.Pod{}}
			codec := codec(corev1.SchemeGroupVersion.WithKind("Pod"), in)
			o, err := read(codec, c.format, []byte(c.data))
			if err == nil {
				_, err = o.Decode()
				testkit.Equal(t, err, in.refused, fmt.Sprintf("Refuse got %v, Decode", in.refused))
			}
			testkit.ErrorContains(t, err, c.why)
		})
	}
}

// TestCodec_Unstructured: numbers keep their kinds, as in client-go, and items of a list, which
// name no kind, get it.
func TestCodec_Unstructured(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "test.dev", Version: "v1", Kind: "Widget"}
	c := codec(kind, &intake{empty: &unstructured.Unstructured{}})
	o, err := read(c, wire.JSON, []byte(`{"metadata":{"name":"a"},"size":9007199254740993,"ratio":1.5}`))
	testkit.NoError(t, err)
	got, err := o.Decode()
	want := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "size": int64(9007199254740993), "ratio": 1.5,
	}}
	testkit.Equal(t, err, nil)
	testkit.DeepEqual(t, got, want)
	testkit.Equal(t, o.GetObjectKind().GroupVersionKind(), kind)
}
