// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestFingerprint_DiffersWithTheJSON: values with different JSON have different fingerprints, and
// the same value has the same one each time.
func TestFingerprint_DiffersWithTheJSON(t *testing.T) {
	object := func(fields map[string]any) any {
		return client.UnstructuredConfiguration(&unstructured.Unstructured{Object: fields})
	}
	values := []func() any{
		func() any { return coreac.ConfigMap("a", "b") },
		func() any { return coreac.ConfigMap("ab", "") },
		func() any { return coreac.ConfigMap("", "ab") },
		func() any { return coreac.ConfigMap("a", "b").WithData(map[string]string{"x": "1", "y": "2"}) },
		func() any { return coreac.ConfigMap("a", "b").WithData(map[string]string{"x": "2", "y": "1"}) },
		func() any { return coreac.ConfigMap("a", "b").WithData(map[string]string{"x": "1"}) },
		func() any { return coreac.ConfigMap("a", "b").WithImmutable(true) },
		func() any { return coreac.ConfigMap("a", "b").WithImmutable(false) },
		func() any { return coreac.ConfigMap("a", "b").WithFinalizers("x", "y") },
		func() any { return coreac.ConfigMap("a", "b").WithFinalizers("xy") },
		func() any { return coreac.ConfigMap("a", "b").WithFinalizers("y", "x") },
		func() any { return coreac.Secret("a", "b") },
		func() any { return coreac.Secret("a", "b").WithData(map[string][]byte{"x": []byte("1")}) },
		func() any { return coreac.Secret("a", "b").WithData(map[string][]byte{"x": nil}) },
		func() any { return coreac.Secret("a", "b").WithData(map[string][]byte{"x": {}}) },
		func() any {
			return coreac.ResourceRequirements().WithLimits(corev1.ResourceList{"cpu": resource.MustParse("1")})
		},
		func() any {
			return coreac.ResourceRequirements().WithLimits(corev1.ResourceList{"cpu": resource.MustParse("1m")})
		},
		func() any { return object(map[string]any{"a": int64(1)}) },
		func() any { return object(map[string]any{"a": "1"}) },
		func() any { return object(map[string]any{"a": nil}) },
		func() any { return object(map[string]any{"a": []any{}}) },
		func() any { return object(map[string]any{"a": map[string]any{}}) },
		func() any { return object(map[string]any{"a": true}) },
		func() any { return object(map[string]any{"a": 1.5}) },
		func() any { return object(map[string]any{}) },
	}
	seed := maphash.MakeSeed()
	known := map[uint64]string{}
	for i, value := range values {
		text, err := json.Marshal(value())
		testkit.NoError(t, err)
		print, ok := fingerprint(seed, value())
		if again, _ := fingerprint(seed, value()); !ok || again != print {
			t.Errorf("value %d, %s: the fingerprint is %x and %x, ok %t", i, text, print, again, ok)
		}
		testkit.Equal(t, known[print], "", fmt.Sprintf("value %d, %s, has the fingerprint of", i, text))
		known[print] = string(text)
	}
}

// TestFingerprint_OfWhatItCannotRead: a value whose JSON may depend on more than its fields has no
// fingerprint, and one that contains itself does not hang.
func TestFingerprint_OfWhatItCannotRead(t *testing.T) {
	type ring struct{ next *ring }
	endless := &ring{}
	endless.next = endless
	for name, value := range map[string]any{
		"a function": func() {}, "a channel": make(chan int), "a ring": endless,
		"a time": coreac.ConfigMap("a", "b").WithCreationTimestamp(metav1.Now()),
	} {
		_, ok := fingerprint(maphash.MakeSeed(), value)
		testkit.Equal(t, ok, false, fmt.Sprintf("%s has a fingerprint", name))
	}
}
