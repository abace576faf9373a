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
	got := testkit.Must(Message(data))
	testkit.Equal(t, string(got), "content")
}
