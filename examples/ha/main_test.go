// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is a replica within this test's process.
type replica struct {
	*manager.Manager

	stop    func()
	result  chan error
	leading chan struct{} // closed when it leads
}

func start(t *testing.T, cluster *envtest.Cluster, namespace, name string) *replica {
	t.Helper()
	r := &replica{result: make(chan error, 1), leading: make(chan struct{})}
	once := sync.OnceFunc(func() { close(r.leading) })
	r.Manager = operator(cluster.Config(), manager.Options{
		Logger: slog.New(slog.DiscardHandler),
		LeaderElection: &leaderelection.Options{
			Lease: lease, Namespace: namespace, Identity: name, Hook: hook.On(func(*hook.LeaseAcquired) { once() }),
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { r.result <- r.Run(ctx) }()
	if err := r.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// A standby takes over when the leader stops, and finds the objects that came meanwhile.
func TestAStandbyTakesOver(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	namespace, err := cluster.Namespace(t.Context(), "ha-")
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	configMaps := client.For[*corev1.ConfigMap](direct)
	create := func(name string) {
		t.Helper()
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{mark: "wanted"}},
			Data:       map[string]string{"key": name},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	a := start(t, cluster, namespace, "a")
	<-a.leading
	b := start(t, cluster, namespace, "b")
	create("before")
	a.stop()
	if err := <-a.result; err != nil {
		t.Error(err)
	}
	create("after")
	<-b.leading
	if err := b.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"before", "after"} {
		got, err := configMaps.GetLive(t.Context(), types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil || got.Annotations[mark] != checksum(got.Data) {
			t.Errorf("%s: %v, %v", name, got.Annotations, err)
		}
	}
	b.stop()
	if err := <-b.result; err != nil {
		t.Error(err)
	}
}
