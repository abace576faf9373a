// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTenants_ShareTheWorkerByWeight fills the queue while the controller is paused, and looks at
// the order in which the keys leave it.
func TestTenants_ShareTheWorkerByWeight(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	var order []types.NamespacedName // one worker appends; the test reads it after Run
	mgr, c := operator(cluster.Config(), func(key types.NamespacedName) { order = append(order, key) })
	c.Pause()
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	idle := func() {
		t.Helper()
		if err := mgr.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// What is created when it is ready is a change, not in the initial list.
	if err := mgr.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	configMaps := client.For[*corev1.ConfigMap](direct)
	create := func(tenant string, n int) (namespace string, last *corev1.ConfigMap) {
		t.Helper()
		namespace, err := cluster.Namespace(t.Context(), tenant)
		for i := 0; i < n && err == nil; i++ {
			last, err = configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("m%d", i)}})
		}
		if err != nil {
			t.Fatal(err)
		}
		return namespace, last
	}
	basic, urgent := create("basic", 20)
	gold, _ := create("gold", 20)
	single, _ := create("single", 1)
	idle() // all keys are ready
	urgent.Annotations = map[string]string{controller.RequeueAnnotation: "now"}
	if _, err := configMaps.Update(t.Context(), urgent); err != nil {
		t.Fatal(err)
	}
	idle()
	c.Resume()
	idle()
	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}

	if at := slices.Index(order, types.NamespacedName{Namespace: basic, Name: urgent.Name}); at < 0 || at > 5 {
		t.Errorf("the interactive key is number %d in %v", at, order)
	}
	if at := slices.Index(order, types.NamespacedName{Namespace: single, Name: "m0"}); at < 0 || at > 12 {
		t.Errorf("the key of the small tenant is number %d in %v", at, order)
	}
	golden, others := 0, 0
	for _, key := range order {
		switch {
		case key.Namespace == gold:
			golden++
		case key.Namespace == basic && golden < 20:
			others++
		}
	}
	if golden != 20 || others > 8 {
		t.Errorf("before the last of %d gold keys, %d basic ones were taken: %v", golden, others, order)
	}
}
