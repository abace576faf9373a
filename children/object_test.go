// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestTyped_KeepsTheObject: the object is at hand for what needs its type. There is none if Typed
// was given nil.
func TestTyped_KeepsTheObject(t *testing.T) {
	obj := &corev1.ConfigMap{}
	if got := Typed(obj).(*typed).of; got != obj {
		t.Errorf("got %v", got)
	}
	testkit.Equal(t, Typed((*corev1.ConfigMap)(nil)).(*typed).of, nil)
}
