// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// FuzzOwnerUIDs compares with the decoder, for all metadata that it accepts.
func FuzzOwnerUIDs(f *testing.F) {
	for _, m := range []metav1.ObjectMeta{{}, pod().ObjectMeta, {OwnerReferences: []metav1.OwnerReference{{UID: types.UID("a")}, {}, {UID: "b", Name: "c"}}}} {
		data, err := m.Marshal()
		testkit.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("\x6a\x06\x22\x01a\x22\x01b")) // twice
	f.Add([]byte("\x6a\x7f\x22\x01a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m metav1.ObjectMeta
		uids, ok := wire.OwnerUIDs(string(data))
		if !ok || m.Unmarshal(data) != nil {
			return
		}
		var want []string
		for _, ref := range m.OwnerReferences {
			want = append(want, string(ref.UID))
		}
		testkit.SlicesEqual(t, uids, want, fmt.Sprintf("%q has the owners", data))
	})
}
