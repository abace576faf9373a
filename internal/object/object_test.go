// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One type: a function of one package can be passed where another wants it.
var (
	_ func(object.Object) = (func(cache.Object))(nil)
	_ func(object.Object) = (func(client.Object))(nil)
	_ func(object.Object) = (func(handler.Object))(nil)
)

// TestObject: API types are objects in each form that the cache keeps. Lists are not.
func TestObject(t *testing.T) {
	for _, o := range []runtime.Object{&corev1.Pod{}, &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}} {
		_, ok := o.(object.Object)
		testkit.Equal(t, ok, true, fmt.Sprintf("%T is no object", o))
	}
	_, ok := runtime.Object(&corev1.PodList{}).(object.Object)
	testkit.Equal(t, ok, false, "a list is an object")
}

// TestVersions: versions compare as numbers of any length. What is not a number is neither earlier
// nor later.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		version, other  string
		atLeast, before bool
	}{
		{"9", "10", false, true},
		{"10", "10", true, false},
		{"10", "9", true, false},
		{"100000000000000000000000", "9", true, false},
		{"", "1", false, false},
		{"1", "", false, false},
		{"0", "1", false, false},
		{"x", "x", false, false},
	} {
		testkit.Equal(t, object.AtLeast(c.version, c.other), c.atLeast, c.version, c.other)
		testkit.Equal(t, object.Before(c.version, c.other), c.before, c.version, c.other)
	}
}

func TestName(t *testing.T) {
	testkit.Equal(t, object.Name(types.NamespacedName{Namespace: "ns", Name: "a"}), "ns/a")
	testkit.Equal(t, object.Name(types.NamespacedName{Name: "a"}), "a")
}
