// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package builtin_test

import (
	"fmt"
	"reflect"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/internal/builtin"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestClusterScoped compares the list with client-go's clientset: the client of a namespaced kind
// takes a namespace, as in Pods("default"), and the client of a cluster-scoped kind does not.
func TestClusterScoped(t *testing.T) {
	checked := 0
	clientset := reflect.TypeFor[kubernetes.Interface]()
	for g := range clientset.NumMethod() {
		group := clientset.Method(g).Type
		if group.NumIn() != 0 || group.NumOut() != 1 || group.Out(0).Kind() != reflect.Interface {
			continue
		}
		for k := range group.Out(0).NumMethod() {
			kind := group.Out(0).Method(k).Type
			if kind.NumOut() != 1 || kind.NumIn() > 1 || kind.Out(0).Kind() != reflect.Interface {
				continue
			}
			get, ok := kind.Out(0).MethodByName("Get")
			if _, lists := kind.Out(0).MethodByName("List"); !ok || !lists {
				continue
			}
			obj, _ := reflect.New(get.Type.Out(0).Elem()).Interface().(runtime.Object)
			kinds, _, err := scheme.Scheme.ObjectKinds(obj)
			testkit.NoError(t, err)
			checked++
			if want, got := kind.NumIn() == 0, builtin.ClusterScoped(kinds[0].GroupKind()); got != want {
				t.Errorf("%s: cluster-scoped is %t, want %t", kinds[0], got, want)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d kinds were compared", checked)
	}
	for _, custom := range []schema.GroupKind{{Group: "test.dev", Kind: "Node"}, {Group: "", Kind: ""}} {
		testkit.Equal(t, builtin.ClusterScoped(custom), false, fmt.Sprintf("%s is not built in", custom))
	}
}
