// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
)

// TestMoving_ReportsOnAService runs the small parts that docs/controller-runtime.md shows.
func TestMoving_ReportsOnAService(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	t.Setenv("WATCH_NAMESPACE", "default")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o, err := moved()
	if err != nil {
		t.Fatal(err)
	}
	mgr := manager.New(cluster.Config(), o)
	server.AddMetrics(mgr, server.Options{Plain: true, Listener: listener})
	newMoving(mgr)
	_ = serveMoved // it listens on fixed ports
	seen := &clusterKeys{}
	severalClusters(mgr, cluster.Config(), seen)
	stop := run(t, mgr)

	c, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	services, key := client.For[*corev1.Service](c), types.NamespacedName{Namespace: "default", Name: "web"}
	service, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	list, err := admin(t, cluster).GetLive(ctx, key)
	if err != nil || list.Data["type"] != "ClusterIP" || !metav1.IsControlledBy(list, service) {
		t.Errorf("the ConfigMap is %v, error: %v", list, err)
	}
	service, err = services.GetLive(ctx, key)
	if err != nil || !meta.IsStatusConditionTrue(service.Status.Conditions, "example.com/Listed") {
		t.Errorf("the Service is %v, error: %v", service, err)
	}
	if err := addFinalizer(ctx, services, service); err != nil {
		t.Error(err)
	}
	if service, err = services.GetLive(ctx, key); err != nil || len(service.Finalizers) != 1 {
		t.Errorf("the Service is %v, error: %v", service, err)
	}
	if text := get(t, "http://"+listener.Addr().String()+"/metrics"); !strings.Contains(text, `controller_runtime_reconcile_total{controller="moving"`) {
		t.Errorf("the metrics are %s", text)
	}
	stop() // sends the events
	if reasons := recorded(t, c, key.Name); !slices.Equal(reasons, []string{"Listed"}) {
		t.Errorf("the events are %q", reasons)
	}
	for _, name := range []string{"east", "west"} {
		if !seen.has(handler.ClusterKey{Cluster: name, NamespacedName: key}) {
			t.Errorf("the Service was not reconciled in cluster %s", name)
		}
	}
}

// clusterKeys records the keys of its Reconciles.
type clusterKeys struct{ keys sync.Map }

func (c *clusterKeys) Reconcile(_ context.Context, key handler.ClusterKey) (controller.Result, error) {
	c.keys.Store(key, true)
	return controller.Result{}, nil
}

func (c *clusterKeys) has(key handler.ClusterKey) bool {
	_, ok := c.keys.Load(key)
	return ok
}

// recorded returns the reasons of the events about an object.
func recorded(t *testing.T, c *client.Client, name string) (reasons []string) {
	t.Helper()
	for e, err := range client.For[*eventsv1.Event](c).ListLive(t.Context(), client.ListOptions{Namespace: "default"}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Regarding.Name == name {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
