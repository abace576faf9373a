// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/controller"
)

// TestValueOf_Hidden: a trace has no content of Secrets, also of an informer that does not know its
// kind, and no object that is too large.
func TestValueOf_Hidden(t *testing.T) {
	if v := controller.ValueOf("", "", &corev1.Secret{StringData: map[string]string{"a": "b"}}); v.JSON != nil || v.Hidden == "" {
		t.Errorf("a Secret: %s", v.JSON)
	}
	large := &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", 1<<20)}}
	if v := controller.ValueOf("", "ConfigMap", large); v.JSON != nil || !strings.Contains(v.Hidden, "at most 1048576 of a Reconcile") {
		t.Errorf("a large object: %.100s, %s", v.JSON, v.Hidden)
	}
}
