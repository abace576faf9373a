// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/setpoint-dev/setpoint/envtest/sim/crd"
)

// A unit test with a custom kind. The definition is the CustomResourceDefinition that
// controller-gen writes, decoded from YAML.
func ExampleNew() {
	test := func(t *testing.T, scheme *runtime.Scheme, definition, lamp runtime.Object) {
		cfg := crd.New(t, scheme, definition, lamp).Config()
		if _, err := dynamic.NewForConfig(cfg); err != nil {
			t.Fatal(err)
		}
	}
	_ = test // func TestLamp(t *testing.T)
}
