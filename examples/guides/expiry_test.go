// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/manager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func configMap(name string, at time.Time) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Annotations: map[string]string{expires: at.Format(time.RFC3339)},
	}}
}

func TestRemaining(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	if left, ok := remaining(configMap("a", noon.Add(time.Hour)), noon); !ok || left != time.Hour {
		t.Errorf("remaining is %s, %v", left, ok)
	}
	if _, ok := remaining(&corev1.ConfigMap{}, noon); ok {
		t.Error("a ConfigMap without annotation expires")
	}
}

// rights are what the operator needs.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: expiry}
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: expiry}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: expiry}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: expiry}
`

func TestExpiry_DeletesWhenTheTimeHasCome(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	if err := cluster.ApplyYAML(ctx, []byte(rights)); err != nil {
		t.Fatal(err)
	}
	cfg, err := cluster.ConfigFor("expiry") // a user with these rights only
	if err != nil {
		t.Fatal(err)
	}

	var hours atomic.Int64
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	mgr, c := newExpiry(cfg, func() time.Time { return noon.Add(time.Duration(hours.Load()) * time.Hour) })
	defer run(t, mgr)()

	maps := admin(t, cluster)
	if _, err := maps.Create(ctx, configMap("greeting", noon.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Idle(ctx); err != nil { // the controller waits for one o'clock
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "greeting"}
	if _, err := maps.GetLive(ctx, key); err != nil {
		t.Fatal(err)
	}

	hours.Store(1)
	c.Requeue(key) // a real timer would fire in an hour
	if err := mgr.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.GetLive(ctx, key); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap is there, error: %v", err)
	}
}

func TestExpiry_SurvivesALostAnswer(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Stop()
	cfg, err := proxy.Config()
	if err != nil {
		t.Fatal(err)
	}
	lost := proxy.Add(fault.Rule{ // the delete succeeds, and the operator gets no answer
		Match: fault.Match{Verbs: []string{"delete"}, Resources: []string{"configmaps"}},
		Lose:  true,
		Times: 1,
	})

	mgr, _ := newExpiry(cfg, time.Now)
	defer run(t, mgr)()
	maps := admin(t, cluster)
	if _, err := maps.Create(ctx, configMap("greeting", time.Now().Add(-time.Hour))); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	if lost.Hits() != 1 {
		t.Errorf("%d deletes, want 1", lost.Hits())
	}
	if _, err := maps.GetLive(ctx, types.NamespacedName{Namespace: "default", Name: "greeting"}); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap is there, error: %v", err)
	}
}

func startCluster(t *testing.T) *envtest.Cluster {
	t.Helper()
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

func admin(t *testing.T, cluster *envtest.Cluster) *client.Handle[*corev1.ConfigMap] {
	t.Helper()
	c, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return client.For[*corev1.ConfigMap](c)
}

// run runs the manager until the function that it returns is called.
func run(t *testing.T, mgr *manager.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	return func() {
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}
