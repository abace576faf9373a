// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// TestReadKey: the key and the controller are those that the decoder reads, also if the object is
// cut off after its metadata. An object that is cut off earlier has no key.
func TestReadKey(t *testing.T) {
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "name", UID: "uid", ResourceVersion: "12", Labels: map[string]string{"ownerReferences": "x"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "other"},
				{APIVersion: "a.dev/v1", Kind: "Website", Name: "site", Controller: new(true)},
				{APIVersion: "v1", Kind: "Pod", Name: "last", Controller: new(false)},
			},
		},
		Data: map[string]string{"k": "v"},
	}
	text, err := json.Marshal(o)
	testkit.NoError(t, err)
	message, err := o.Marshal()
	testkit.NoError(t, err)
	for f, data := range map[wire.Format][]byte{wire.JSON: text, wire.Protobuf: message} {
		k, ok := wire.ReadKey(f, data, true)
		if !ok || string(k.Namespace) != "ns" || string(k.Name) != "name" || string(k.ResourceVersion) != "12" {
			t.Errorf("%v: got %s, %t", f, k, ok)
		}
		if c := k.Controller; string(c.APIVersion) != "a.dev/v1" || string(c.Kind) != "Website" || string(c.Name) != "site" {
			t.Errorf("%v: got %s", f, c)
		}
		if k, _ := wire.ReadKey(f, data, false); k.Controller.Name != nil {
			t.Errorf("%v: the controller was not asked for", f)
		}
		for n := range data {
			if k, ok := wire.ReadKey(f, data[:n], true); ok && string(k.Controller.Name) != "site" {
				t.Errorf("%v: the first %d bytes have the key %s", f, n, k)
			}
		}
	}
	_, ok := wire.ReadKey(wire.Unknown, []byte{0xd9}, true)
	testkit.Equal(t, ok, false, "an unknown format has a key")
}
