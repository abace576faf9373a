// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/managed"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestFieldManagersSkipWhatHasNoOwner compares the managedFields of an object without the metadata
// that ownable leaves out with the ones in the whole object.
func TestFieldManagersSkipWhatHasNoOwner(t *testing.T) {
	c := Codec{Kind: kinds.Resource{Version: "v1", Kind: "ConfigMap"}.GVK(), Typed: true}
	converter := testkit.Must(c.TypeConverter())
	fields := func(converter managedfields.TypeConverter, live, obj runtime.Object) string {
		f := testkit.Must(managedfields.NewDefaultFieldManager(converter, OneVersion{}, OneVersion{}, c, c.Kind, c.Kind.GroupVersion(), "", nil))
		obj = testkit.Must(f.Update(live, obj, "test"))
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
	blank := testkit.Must(c.Empty())
	for _, live := range []*unstructured.Unstructured{blank, readObject(t, before)} {
		want := fields(converter, live, readObject(t, after))
		testkit.Equal(t, fields(managed.Ownable{TypeConverter: converter}, managed.Read(live), managed.Read(readObject(t, after))), want)
	}
}

func readObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	testkit.NoError(t, json.Unmarshal([]byte(text), &u.Object))
	return u
}
