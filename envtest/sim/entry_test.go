// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

func parseObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestManagedEntriesAreThoseOfUnstructured(t *testing.T) {
	for _, list := range []string{
		`null`, `[]`, `[{}]`, `5`,
		`[{"manager":"a","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:k":{}}}},
		  {"manager":"b","operation":"Apply","apiVersion":"v1","subresource":"status","fieldsType":"FieldsV1","fieldsV1":{}}]`,
	} {
		u := parseObject(t, `{"metadata":{"name":"a","managedFields":`+list+`}}`)
		want := u.GetManagedFields()
		got := managed(u)
		if !reflect.DeepEqual(got.GetManagedFields(), want) {
			t.Errorf("%s: got %v, want %v", list, got.entries, want)
		}
		for i := range want {
			want[i].Time, want[i].FieldsV1 = nil, nil
		}
		if h := heads(u); !reflect.DeepEqual(h, want) {
			t.Errorf("%s: got %v, want %v", list, h, want)
		}
		bare, other := parseObject(t, `{"metadata":{"name":"a"}}`), parseObject(t, `{"metadata":{"name":"a"}}`)
		if err := setManagedEntries(bare, got.entries); err != nil {
			t.Error(err)
		}
		if other.SetManagedFields(got.entries); !jsonvalue.Equal(bare.Object, other.Object) {
			t.Errorf("%s: got %v, want %v", list, bare.Object, other.Object)
		}
	}
	if m := managed(parseObject(t, `{"metadata":{"managedFields":[{"time":"noon"}]}}`)); m.entries != nil {
		t.Errorf("an entry with an invalid time is %v", m.entries)
	}
}

// TestFieldManagersSkipWhatHasNoOwner compares the managedFields of an object without the metadata
// that ownable leaves out with the ones in the whole object.
func TestFieldManagersSkipWhatHasNoOwner(t *testing.T) {
	c := codec{kind: kinds.Resource(ConfigMaps).GVK(), typed: true}
	converter, err := c.typeConverter()
	if err != nil {
		t.Fatal(err)
	}
	fields := func(converter managedfields.TypeConverter, live, obj runtime.Object) string {
		f, err := managedfields.NewDefaultFieldManager(converter, oneVersion{}, oneVersion{}, creator{c}, c.kind, c.kind.GroupVersion(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if obj, err = f.Update(live, obj, "test"); err != nil {
			t.Fatal(err)
		}
		var raw []string
		for _, e := range obj.(metav1.Object).GetManagedFields() {
			raw = append(raw, e.Manager+e.FieldsV1.String())
		}
		data, _ := json.Marshal(raw)
		return string(data)
	}
	const before = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","uid":"1","resourceVersion":"1","generation":1,
		"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b"},"finalizers":["a/b"],
		"managedFields":[{"manager":"other","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",
			"fieldsV1":{"f:data":{".":{},"f:k":{}}}}]},"data":{"k":"v"}}`
	const after = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","uid":"1","resourceVersion":"2","generation":2,
		"annotations":{"c":"d"},"generateName":"a",
		"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"2"}],"deletionGracePeriodSeconds":3},"data":{"k":"w"}}`
	blank, err := c.empty()
	if err != nil {
		t.Fatal(err)
	}
	for _, live := range []*unstructured.Unstructured{blank, parseObject(t, before)} {
		want := fields(converter, live, parseObject(t, after))
		if got := fields(ownable{converter}, managed(live), managed(parseObject(t, after))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
