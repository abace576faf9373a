// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/object"
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
		if _, ok := o.(object.Object); !ok {
			t.Errorf("%T is no object", o)
		}
	}
	if _, ok := runtime.Object(&corev1.PodList{}).(object.Object); ok {
		t.Error("a list is an object")
	}
}
