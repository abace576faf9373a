// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/internal/testkit"
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
		testkit.DeepEqual(t, got.GetManagedFields(), want, list)
		for i := range want {
			want[i].Time, want[i].FieldsV1 = nil, nil
		}
		testkit.DeepEqual(t, heads(u), want, list)
		bare, other := parseObject(t, `{"metadata":{"name":"a"}}`), parseObject(t, `{"metadata":{"name":"a"}}`)
		testkit.NoError(t, Write(bare, got.Entries), list)
		if other.SetManagedFields(got.Entries); !jsonvalue.Equal(bare.Object, other.Object) {
			t.Errorf("%s: got %v, want %v", list, bare.Object, other.Object)
		}
	}
	m := Read(parseObject(t, `{"metadata":{"managedFields":[{"time":"noon"}]}}`))
	testkit.Equal(t, m.Entries == nil, true, "an entry with an invalid time", m.Entries)
}

func parseObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	testkit.NoError(t, json.Unmarshal([]byte(text), &u.Object))
	return u
}
