// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// codecs is the table of forms.
func codecs() map[string]storage.Codec {
	decoded := storage.Decoded{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), New: func() object.Object { return &corev1.ConfigMap{} }}
	return map[string]storage.Codec{"decoded": &decoded, "packed": &packed.Codec{Decoded: decoded, Intake: intake{}}}
}

type intake struct{}

func (intake) Intern(s string) string { return strings.Clone(s) }

func (intake) Refuse(object.Object, error) {}

// TestForms: in each form and encoding, a stored object has the metadata and the content of the
// object that was read, and does not refer to the bytes that it was read from. A copy is the
// caller's own.
func TestForms(t *testing.T) {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "x", UID: "owner"}},
		},
		Data: map[string]string{"key": "value"},
	}
	encodings := map[wire.Format]func() ([]byte, error){
		wire.Protobuf: want.Marshal, wire.JSON: func() ([]byte, error) { return json.Marshal(want) },
	}
	for form, codec := range codecs() {
		for format, encode := range encodings {
			data, err := encode()
			testkit.NoError(t, err)
			o, err := codec.Read(format, data)
			testkit.NoError(t, err, fmt.Sprintf("%s, format %d", form, format))
			clear(data)
			if reflect.TypeOf(o) != reflect.TypeOf(codec.Example()) {
				t.Errorf("%s: read a %T, the example is a %T", form, o, codec.Example())
			}
			labels, ok := storage.Labels(o)
			if owners, known := storage.OwnerUIDs(o); labels["app"] != "web" || !ok || !slices.Equal(owners, []string{"owner"}) || !known {
				t.Errorf("%s, format %d: labels %v %t, owners %v %t", form, format, labels, ok, owners, known)
			}
			for name, read := range map[string]func() (any, error){
				"Copy": func() (any, error) { return storage.Copy(o) }, "Shared": func() (any, error) { return storage.Shared(o) },
				"Indexed": func() (any, error) { return storage.Indexed(o), nil }, "Final": func() (any, error) { return storage.Final(o), nil },
			} {
				if got, err := read(); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s, format %d, %s: %v, %v", form, format, name, got, err)
				}
			}
			mine, _ := storage.Copy(o)
			mine.(*corev1.ConfigMap).Data["key"] = "changed"
			others, _ := storage.Shared(o)
			testkit.Equal(t, others.(*corev1.ConfigMap).Data["key"], "value", form, "a change of a copy is a change of the stored object")
			if n, ok := storage.Size(o); n == 0 || !ok {
				t.Errorf("%s: size %d %t", form, n, ok)
			}
		}
	}
}

// TestForms_Refused: bytes that are no object, and objects of another kind, are errors in each
// form, at the latest when they are decoded.
func TestForms_Refused(t *testing.T) {
	for form, codec := range codecs() {
		for _, text := range []string{
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, `{"metadata":{"name":"a"},"data":[1]}`, `{"metadata":`,
		} {
			o, err := codec.Read(wire.JSON, []byte(text))
			if err == nil {
				_, err = storage.Copy(o)
			}
			testkit.NotEqual(t, err, nil, form, fmt.Sprintf("%s is an object", text))
			if o != nil && !reflect.DeepEqual(storage.Final(o).(object.Object).GetName(), "a") {
				t.Errorf("%s: the last state of %s has no name", form, text)
			}
		}
	}
}
