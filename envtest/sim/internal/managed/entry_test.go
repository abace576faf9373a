// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
)

func TestManagedEntriesAreThoseOfUnstructured(t *testing.T) {
	for _, list := range []string{
		`null`, `[]`, `[{}]`, `5`,
		`[{"manager":"a","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:k":{}}}},
		  {"manager":"b","operation":"Apply","apiVersion":"v1","subresource":"status","fieldsType":"FieldsV1","fieldsV1":{}}]`,
	} {
		u := parseObject(t, `{"metadata":{"name":"a","managedFields":`+list+`}}`)
		want := u.GetManagedFields()
		got := Read(u)
		if !reflect.DeepEqual(got.GetManagedFields(), want) {
			t.Errorf("%s: got %v, want %v", list, got.Entries, want)
		}
		for i := range want {
			want[i].Time, want[i].FieldsV1 = nil, nil
		}
		if h := heads(u); !reflect.DeepEqual(h, want) {
			t.Errorf("%s: got %v, want %v", list, h, want)
		}
		bare, other := parseObject(t, `{"metadata":{"name":"a"}}`), parseObject(t, `{"metadata":{"name":"a"}}`)
		if err := Write(bare, got.Entries); err != nil {
			t.Error(err)
		}
		if other.SetManagedFields(got.Entries); !jsonvalue.Equal(bare.Object, other.Object) {
			t.Errorf("%s: got %v, want %v", list, bare.Object, other.Object)
		}
	}
	if m := Read(parseObject(t, `{"metadata":{"managedFields":[{"time":"noon"}]}}`)); m.Entries != nil {
		t.Errorf("an entry with an invalid time is %v", m.Entries)
	}
}

func parseObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
