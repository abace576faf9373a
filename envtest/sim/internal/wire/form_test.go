// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMessage_ReadsTheEnvelope(t *testing.T) {
	data := Envelope(metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, []byte("content"))
	if got, err := Message(data); err != nil || !bytes.Equal(got, []byte("content")) {
		t.Errorf("got %q, %v", got, err)
	}
}
