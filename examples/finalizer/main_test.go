// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFinalizer_HoldsTheObjectUntilTheFileIsDeleted has the first deletion of the file fail.
func TestFinalizer_HoldsTheObjectUntilTheFileIsDeleted(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	dir, failures := t.TempDir(), make(chan error, 100)
	mgr := operator(cluster.Config(), dir, controller.Options{Hook: hook.On(func(r *hook.Reconciled) {
		if r.Err != nil {
			failures <- r.Err
		}
	})})
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	idle := func() {
		t.Helper()
		if err := mgr.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	configMaps := client.For[*corev1.ConfigMap](direct)
	key := types.NamespacedName{Namespace: "default", Name: "greeting"}
	created := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{label: "wanted"}},
		Data:       map[string]string{"hello": "world"},
	}
	if _, err := configMaps.Create(t.Context(), created); err != nil {
		t.Fatal(err)
	}
	idle()
	file := filepath.Join(dir, "default_greeting.json")
	if data, err := os.ReadFile(file); string(data) != `{"hello":"world"}` || err != nil {
		t.Fatalf("the file contains %q, %v", data, err)
	}

	block := filepath.Join(file, "block") // a directory that is not empty cannot be removed
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(block, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := configMaps.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	<-failures
	if got, err := configMaps.GetLive(t.Context(), key); err != nil || got.DeletionTimestamp == nil {
		t.Fatalf("while the file exists: %v, %v", got, err)
	}
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	idle()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file was not deleted: %v", err)
	}
	if _, err := configMaps.GetLive(t.Context(), key); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap was not deleted: %v", err)
	}

	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
