// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMessage_ReadsTheEnvelope(t *testing.T) {
	data := Envelope(metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, []byte("content"))
	got, err := Message(data)
	testkit.NoError(t, err)
	testkit.Equal(t, string(got), "content")
}
