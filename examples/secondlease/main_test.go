// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSecondLease_LeadsWhenItIsReleased has another process hold the second Lease at first.
func TestSecondLease_LeadsWhenItIsReleased(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	configMaps := client.For[*corev1.ConfigMap](direct)
	key := types.NamespacedName{Namespace: "default", Name: "greeting"}
	created := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Data:       map[string]string{"hello": "world"},
	}
	if _, err := configMaps.Create(t.Context(), created); err != nil {
		t.Fatal(err)
	}

	other, err := leaderelection.New(cluster.Config(), leaderelection.Options{Lease: "count-bytes", Namespace: key.Namespace, Identity: "other"})
	if err != nil {
		t.Fatal(err)
	}
	holding, releaseIt := context.WithCancel(t.Context())
	held, released := make(chan struct{}), make(chan error, 1)
	go func() {
		released <- other.Run(holding, func(take, _ context.Context) error {
			close(held)
			<-take.Done()
			return nil
		})
	}()
	<-held

	reconciled := make(chan string, 100)
	mgr := operator(cluster.Config(), key.Namespace, controller.Options{Hook: hook.On(func(r *hook.Reconciled) { reconciled <- r.Controller })})
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	if name := <-reconciled; name != "entries" {
		t.Errorf("%s leads without its Lease", name)
	}
	labels := func() map[string]string {
		t.Helper()
		got, err := configMaps.GetLive(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return got.Labels
	}
	if got := labels(); got["example.com/entries"] != "1" || got["example.com/bytes"] != "" {
		t.Errorf("under the first Lease the labels are %v", got)
	}

	releaseIt()
	if err := <-released; err != nil {
		t.Error(err)
	}
	if err := mgr.Idle(t.Context()); err != nil { // both lead, and have nothing left to do
		t.Fatal(err)
	}
	if got := labels(); got["example.com/entries"] != "1" || got["example.com/bytes"] != "10" {
		t.Errorf("under both Leases the labels are %v", got)
	}

	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
