// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"hash/fnv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestHashOf: members of another release compute the same.
func TestHashOf(t *testing.T) {
	h := fnv.New64a()
	_, _ = h.Write([]byte("default\x00web\x00uid-1"))
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	if got, want := hashOf(name, "uid-1"), Mixed(h.Sum64()); got != want {
		t.Errorf("%x, want %x", got, want)
	}
	if n := testing.AllocsPerRun(10, func() { _ = hashOf(name, "uid-1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
